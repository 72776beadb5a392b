// SPDX-License-Identifier: Apache-2.0
#include "base/digest.h"

#include <openssl/evp.h>

#include <algorithm>

namespace apus {

std::string hex_digest(const std::string& text, size_t bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr);
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(size, bytes); ++i) {
    static const char hex[] = "0123456789abcdef";
    out += hex[digest[i] >> 4];
    out += hex[digest[i] & 15];
  }
  return out;
}

}  // namespace apus
