// SPDX-License-Identifier: Apache-2.0
#include "base/base64.h"

#include <openssl/evp.h>

#include "base/error.h"

namespace apus {

std::string base64(std::string_view bytes) {
  std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  out.resize(static_cast<size_t>(EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                                 reinterpret_cast<const unsigned char*>(bytes.data()),
                                                 static_cast<int>(bytes.size()))));
  return out;
}

std::string from_base64(std::string_view text) {
  const auto damaged = [](bool ok) { require(ok, Fault::Data, "text that should be base64 is not"); };
  damaged(text.size() % 4 == 0);
  if (text.empty()) return "";
  std::string out(text.size() / 4 * 3, '\0');
  const int got = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                  reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  damaged(got >= 0);
  out.resize(static_cast<size_t>(got) - (text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0));
  return out;
}

}  // namespace apus
