// SPDX-License-Identifier: Apache-2.0
// Protocol buffers' wire format, as far as the records of a run need it: a key is field << 3 | kind.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace apus::wire {

enum Kind : unsigned { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

inline void varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

template <class Unsigned>
void little_endian(std::string& out, Unsigned value) {
  for (size_t i = 0; i < sizeof value; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

inline void key(std::string& out, unsigned field, Kind kind) { varint(out, field << 3 | kind); }

inline void number(std::string& out, unsigned field, int64_t value) {
  key(out, field, Varint);
  varint(out, static_cast<uint64_t>(value));
}

inline void real(std::string& out, unsigned field, double value) {
  key(out, field, Fixed64);
  little_endian(out, std::bit_cast<uint64_t>(value));
}

inline void bytes(std::string& out, unsigned field, std::string_view value) {
  key(out, field, Bytes);
  varint(out, value.size());
  out += value;
}

}  // namespace apus::wire
