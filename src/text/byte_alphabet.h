// SPDX-License-Identifier: Apache-2.0
// The alphabet in which byte-level vocabularies are spelled: one printable character for each of the 256 bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/unicode.h"

namespace apus::byte_alphabet {

// Bytes that are printable characters in Latin-1 stand for themselves; the others take U+0100, U+0101, ... in order.
constexpr bool is_itself(int byte) { return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD); }

constexpr std::array<uint16_t, 256> chars() {
  std::array<uint16_t, 256> to{};
  uint16_t next = 0x100;
  for (int b = 0; b < 256; ++b) to[static_cast<size_t>(b)] = is_itself(b) ? static_cast<uint16_t>(b) : next++;
  return to;
}
inline constexpr std::array<uint16_t, 256> kChar = chars();

constexpr std::array<int16_t, 0x144> bytes() {
  std::array<int16_t, 0x144> from{};
  for (auto& b : from) b = -1;
  for (int b = 0; b < 256; ++b) from[kChar[static_cast<size_t>(b)]] = static_cast<int16_t>(b);
  return from;
}
inline constexpr std::array<int16_t, 0x144> kByte = bytes();  // -1: stands for no byte

inline void append(std::string& out, std::string_view bytes) {
  for (const char c : bytes) unicode::append(out, kChar[static_cast<unsigned char>(c)]);
}

// Appends the bytes that `text` spells; false, with `out` as it was, if it has other characters.
inline bool append_bytes(std::string& out, std::string_view text) {
  const size_t before = out.size();
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const char32_t c = unicode::next_char(p);
    const int byte = c < kByte.size() ? kByte[c] : -1;
    if (byte < 0) {
      out.resize(before);
      return false;
    }
    out += static_cast<char>(byte);
  }
  return true;
}

}  // namespace apus::byte_alphabet
