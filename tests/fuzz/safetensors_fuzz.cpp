// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file, or as one of PyTorch's, or as the pickle in one: entries that lie inside it, or an
// Error; nothing else.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "tensor/safetensors_header.h"
#include "tensor/torch_file.h"

namespace {
void check(const std::string& bytes) {
  try {
    const auto size = static_cast<int64_t>(bytes.size());
    const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
    const auto header = apus::is_torch_file(data, size) ? apus::parse_torch_file(data, size, "fuzz")
                                                        : apus::parse_safetensors_header(data, size, "fuzz");
    for (const auto& [name, entry] : header.tensors)
      if (entry.begin < 8 || entry.end < entry.begin || entry.end > size) std::abort();
  } catch (const apus::Error&) {}
}

void put(std::string& out, uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) out += i < 8 ? static_cast<char>(number >> (8 * i) & 255) : 0;
}

// An archive of a pickle and sixteen bytes beside it.
std::string archive_of(const std::string& pickle) {
  std::string out, list;
  for (const auto& [name, bytes] :
       {std::pair<std::string, std::string>{"a/data.pkl", pickle}, {"a/data/0", std::string(16, 'x')}}) {
    const auto entry = [&, size = bytes.size(), length = name.size()](std::string& to, uint32_t magic, bool listed) {
      put(to, magic, 4), put(to, 0, listed ? 6 : 4), put(to, 0, 10);
      put(to, size, 4), put(to, size, 4), put(to, length, 2), put(to, 0, 2);
    };
    const size_t place = out.size();
    entry(list, 0x02014b50, true), put(list, 0, 10), put(list, place, 4), list += name;
    entry(out, 0x04034b50, false), out += name + bytes;
  }
  const size_t begin = out.size();
  out += list;
  put(out, 0x06054b50, 4), put(out, 0, 6), put(out, 2, 2), put(out, list.size(), 4), put(out, begin, 4), put(out, 0, 2);
  return out;
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
  check(archive_of(text));
  return 0;
}
