// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: entries that lie inside it, or an Error; nothing else.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "tensor/safetensors_header.h"

namespace {
void check(const std::string& bytes) {
  try {
    const auto size = static_cast<int64_t>(bytes.size());
    const auto header = apus::parse_safetensors_header(reinterpret_cast<const std::byte*>(bytes.data()), size, "fuzz");
    for (const auto& [name, entry] : header.tensors)
      if (entry.begin < 8 || entry.end < entry.begin || entry.end > size) std::abort();
  } catch (const apus::Error&) {}
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check(text);
  // Random lengths hardly ever fit: the same bytes as header and data with a length that does.
  std::string framed(8, '\0');
  const uint64_t split = size / 2;
  std::memcpy(framed.data(), &split, 8);
  check(framed + text);
  return 0;
}
