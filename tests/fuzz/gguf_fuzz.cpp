// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file: tensors that lie inside it, or an Error; nothing else. What it says of a tokenizer is made
// into one, or refused.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "gguf/import.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A good beginning, so that the rest of the bytes is looked at.
  std::string bytes("GGUF\3\0\0\0", 8);
  bytes.append(reinterpret_cast<const char*>(data), size);
  for (const std::string& text : {bytes, bytes.substr(8)}) {
    try {
      const auto length = static_cast<int64_t>(text.size());
      const auto header = apus::parse_gguf(reinterpret_cast<const std::byte*>(text.data()), length, "fuzz");
      for (const auto& tensor : header.tensors)
        if (tensor.begin < 24 || tensor.bytes < 0 || tensor.begin + tensor.bytes > length) std::abort();
      apus::json_text(apus::tokenizer_of_gguf(header));
    } catch (const apus::Error&) {}
  }
  return 0;
}
