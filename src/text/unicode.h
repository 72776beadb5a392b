// SPDX-License-Identifier: Apache-2.0
// Unicode as tokenizers need it: UTF-8, character classes by one table look-up, normal forms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace apus::unicode {

constexpr char32_t kReplacement = 0xFFFD;

// What a character is; a CharTable cell is an OR of these.
enum Trait : uint16_t {
  kLetter = 1,         // \p{L}
  kNumber = 2,         // \p{N}
  kSpace = 4,          // White_Space
  kMark = 8,           // \p{M}
  kPunctuation = 16,   // \p{P}
  kWord = 32,          // \w: Alphabetic, M, Nd, Pc and the joiners
  kNotNfc = 64,        // NFC_Quick_Check is not Yes
  kJoins = 128,        // may interact with the character before it under NFC and NFD
  kJoinsCompat = 256,  // the same under NFKC and NFKD
  kControl = 512,      // \p{Cc} \p{Cf} \p{Cn} \p{Co}
  kNonspacing = 1024,  // \p{Mn}
  kCombining = 2048,   // combining class is not 0
};

class CharTable {
 public:
  static const CharTable& get();  // built at the first call, a few ms
  uint16_t operator[](char32_t c) const { return cells_[pages_[c >> 8] * 256u + (c & 255)]; }  // c <= 0x10FFFF

 private:
  CharTable();
  uint16_t pages_[0x1100];
  std::vector<uint16_t> cells_;
};

// Bytes of the character that starts with `lead`; 1 for bytes that start none.
inline int utf8_length(unsigned char lead) { return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }
inline bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// The character at `p` of valid UTF-8; `p` moves behind it.
inline char32_t next_char(const char*& p) {
  const auto byte = [&] { return static_cast<char32_t>(static_cast<unsigned char>(*p++)); };
  const char32_t a = byte();
  if (a < 0x80) return a;
  if (a < 0xE0) return (a & 31) << 6 | (byte() & 63);
  const char32_t b = byte() & 63;
  if (a < 0xF0) return (a & 15) << 12 | b << 6 | (byte() & 63);
  const char32_t c = byte() & 63;
  return (a & 7) << 18 | b << 12 | c << 6 | (byte() & 63);
}
// The character before `p`; `p` moves to it.
inline char32_t previous_char(const char*& p) {
  do --p;
  while (is_continuation(*p));
  const char* q = p;
  return next_char(q);
}

void append(std::string& out, char32_t c);

// Length of the well-formed sequence at the start of `s` (> 0), or minus the length of the ill-formed part that one
// U+FFFD replaces (Unicode's maximal subpart). `s` is not empty.
// `cut`: set if `s` ends in the middle of what may yet be well-formed.
int sequence(std::string_view s, bool* cut = nullptr);
size_t valid_prefix(std::string_view s);  // bytes of well-formed UTF-8 at the start
std::string lossy(std::string_view s);    // each maximal ill-formed subpart becomes U+FFFD

enum class Form { Nfc, Nfd, Nfkc, Nfkd };
// True if the text is known to be in the form already (quick).
bool is_normal(std::string_view s, Form form);
std::string normalize(std::string_view s, Form form);
// End of the shortest prefix that can be normalised by itself; `s` is not empty.
size_t normal_boundary(std::string_view s, Form form);

void append_lower(std::string& out, char32_t c);        // full lower case of one character, without context
std::vector<size_t> grapheme_ends(std::string_view s);  // ends of the extended grapheme clusters

}  // namespace apus::unicode
