// SPDX-License-Identifier: Apache-2.0
#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>

#include "base/error.h"

namespace apus::unicode {
namespace {

int combining_class(char32_t c) { return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class; }

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// Letters, numbers, marks and punctuation that Unicode 15.1 and 16.0 added: the library may be older.
struct Later {
  char32_t first, last;
  utf8proc_category_t category;
};
constexpr auto kLo = UTF8PROC_CATEGORY_LO, kNd = UTF8PROC_CATEGORY_ND, kMn = UTF8PROC_CATEGORY_MN,
               kMc = UTF8PROC_CATEGORY_MC, kPo = UTF8PROC_CATEGORY_PO;
constexpr Later kLater[] = {
    {0x897, 0x897, kMn},     {0x1B4E, 0x1B4F, kPo},   {0x1B7F, 0x1B7F, kPo},   {0x1C89, 0x1C8A, kLo},
    {0xA7CB, 0xA7CD, kLo},   {0xA7DA, 0xA7DC, kLo},   {0x105C0, 0x105F3, kLo}, {0x10D40, 0x10D49, kNd},
    {0x10D4A, 0x10D65, kLo}, {0x10D69, 0x10D6D, kMn}, {0x10D6E, 0x10D6E, kPo}, {0x10D6F, 0x10D85, kLo},
    {0x10EC2, 0x10EC4, kLo}, {0x10EFC, 0x10EFC, kMn}, {0x11380, 0x11389, kLo}, {0x1138B, 0x1138B, kLo},
    {0x1138E, 0x1138E, kLo}, {0x11390, 0x113B5, kLo}, {0x113B7, 0x113B7, kLo}, {0x113B8, 0x113BA, kMc},
    {0x113BB, 0x113C0, kMn}, {0x113C2, 0x113C2, kMc}, {0x113C5, 0x113C5, kMc}, {0x113C7, 0x113CA, kMc},
    {0x113CC, 0x113CD, kMc}, {0x113CE, 0x113CE, kMn}, {0x113CF, 0x113CF, kMc}, {0x113D0, 0x113D0, kMn},
    {0x113D1, 0x113D1, kLo}, {0x113D2, 0x113D2, kMn}, {0x113D3, 0x113D3, kLo}, {0x113D4, 0x113D5, kPo},
    {0x113D7, 0x113D8, kPo}, {0x113E1, 0x113E2, kMn}, {0x116D0, 0x116E3, kNd}, {0x11BC0, 0x11BE0, kLo},
    {0x11BE1, 0x11BE1, kPo}, {0x11BF0, 0x11BF9, kNd}, {0x11F5A, 0x11F5A, kMn}, {0x13460, 0x143FA, kLo},
    {0x16100, 0x1611D, kLo}, {0x1611E, 0x16129, kMn}, {0x1612A, 0x1612C, kMc}, {0x1612D, 0x1612F, kMn},
    {0x16130, 0x16139, kNd}, {0x16D40, 0x16D6C, kLo}, {0x16D6D, 0x16D6F, kPo}, {0x16D70, 0x16D79, kNd},
    {0x18CFF, 0x18CFF, kLo}, {0x1CCF0, 0x1CCF9, kNd}, {0x1E5D0, 0x1E5ED, kLo}, {0x1E5EE, 0x1E5EF, kMn},
    {0x1E5F0, 0x1E5F0, kLo}, {0x1E5F1, 0x1E5FA, kNd}, {0x1E5FF, 0x1E5FF, kPo}, {0x2EBF0, 0x2EE5D, kLo},
};

utf8proc_category_t category(char32_t c) {
  const auto own = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  if (own != UTF8PROC_CATEGORY_CN) return own;
  const auto* it =
      std::upper_bound(std::begin(kLater), std::end(kLater), c, [](char32_t x, const Later& l) { return x < l.first; });
  return it != std::begin(kLater) && c <= it[-1].last ? it[-1].category : own;
}

uint16_t category_traits(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter | kWord;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
      return kNumber | kWord;
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    case UTF8PROC_CATEGORY_MN:
      return kMark | kWord | kNonspacing;
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark | kWord;
    case UTF8PROC_CATEGORY_PC:
      return kPunctuation | kWord;
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return kPunctuation;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
      return kControl;
    default:
      return 0;
  }
}

// Symbols that are Alphabetic (circled and squared Latin letters), and the two joiners.
bool is_other_word(char32_t c) {
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189) || c == 0x200C || c == 0x200D;
}

utf8proc_option_t options(Form form) {
  const bool compose = form == Form::Nfc || form == Form::Nfkc, compat = form == Form::Nfkc || form == Form::Nfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                        (compat ? UTF8PROC_COMPAT : 0));
}

// Decomposition of one character; at most 18 long in any Unicode version.
int decompose(char32_t c, bool compat, utf8proc_int32_t* out, int room) {
  const auto flags = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0));
  int bound = 0;
  const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), out, room, flags, &bound);
  return n < 0 || n > room ? 0 : static_cast<int>(n);
}

}  // namespace

const CharTable& CharTable::get() {
  static const CharTable table;
  return table;
}

CharTable::CharTable() {
  // Planes 4 to 13 are unassigned, 15 and 16 private: one shared page each stands for them.
  std::vector<uint16_t> all(0x110000, 0);
  std::fill(all.begin() + 0xF0000, all.begin() + 0xFFFFE, kControl);
  std::fill(all.begin() + 0x100000, all.begin() + 0x10FFFE, kControl);
  const auto each = [](auto&& visit) {
    for (char32_t c = 0; c < 0x40000; ++c) visit(c);
    for (char32_t c = 0xE0000; c < 0xE1000; ++c) visit(c);
  };
  each([&](char32_t c) {
    uint16_t t = category_traits(c);
    if (is_space(c)) t |= kSpace;
    if (is_other_word(c)) t |= kWord;
    if (combining_class(c)) t |= kJoins | kJoinsCompat | kCombining;
    all[c] = t;
  });
  each([&](char32_t c) {
    if (utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->decomp_seqindex == UINT16_MAX) return;
    utf8proc_int32_t parts[32];
    const int n = decompose(c, false, parts, 32);
    if (n == 0 || (n == 1 && parts[0] == static_cast<utf8proc_int32_t>(c))) return;
    for (int i = 1; i < n; ++i) all[static_cast<size_t>(parts[i])] |= kJoins | kJoinsCompat | kNotNfc;
    const auto back = utf8proc_normalize_utf32(parts, n, options(Form::Nfc));
    if (back != 1 || parts[0] != static_cast<utf8proc_int32_t>(c)) all[c] |= kNotNfc;
  });
  for (char32_t c = 0x1161; c <= 0x1175; ++c) all[c] |= kJoins | kJoinsCompat | kNotNfc;  // Hangul vowels
  for (char32_t c = 0x11A8; c <= 0x11C2; ++c) all[c] |= kJoins | kJoinsCompat | kNotNfc;  // and final consonants
  each([&](char32_t c) {  // needs the flags above for what a character decomposes to
    utf8proc_int32_t parts[32];
    if (utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->decomp_seqindex == UINT16_MAX) return;
    if (decompose(c, false, parts, 32) > 0 && (all[static_cast<size_t>(parts[0])] & kJoins)) all[c] |= kJoins | kNotNfc;
    if (decompose(c, true, parts, 32) > 0 && (all[static_cast<size_t>(parts[0])] & kJoinsCompat))
      all[c] |= kJoinsCompat;
  });
  std::map<std::string_view, uint16_t> seen;
  for (size_t page = 0; page < 0x1100; ++page) {
    const std::string_view key(reinterpret_cast<const char*>(&all[page * 256]), 512);
    const auto [it, fresh] = seen.emplace(key, static_cast<uint16_t>(seen.size()));
    if (fresh) cells_.insert(cells_.end(), &all[page * 256], &all[page * 256] + 256);
    pages_[page] = it->second;
  }
}

void append(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xC0 | c >> 6), put(0x80 | (c & 63));
  if (c < 0x10000) return put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 63)), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
}

int sequence(std::string_view s, bool* cut) {
  if (cut) *cut = false;
  const auto at = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return -1;
  const int length = utf8_length(lead);
  unsigned char low = 0x80, high = 0xBF;  // of the second byte; later ones have the full range
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (int i = 1; i < length; ++i) {
    if (static_cast<size_t>(i) == s.size()) {
      if (cut) *cut = true;
      return -i;
    }
    if (at(static_cast<size_t>(i)) < low || at(static_cast<size_t>(i)) > high) return -i;
    low = 0x80, high = 0xBF;
  }
  return length;
}

size_t valid_prefix(std::string_view s) {
  size_t i = 0;
  while (i < s.size()) {
    if (s.size() - i >= 8) {  // eight ASCII bytes at a time
      uint64_t word;
      std::memcpy(&word, s.data() + i, 8);
      if (!(word & 0x8080808080808080u)) {
        i += 8;
        continue;
      }
    }
    const int n = sequence(s.substr(i));
    if (n < 0) return i;
    i += static_cast<size_t>(n);
  }
  return i;
}

std::string lossy(std::string_view s) {
  std::string out;
  while (true) {
    const size_t good = valid_prefix(s);
    out.append(s.substr(0, good));
    s.remove_prefix(good);
    if (s.empty()) return out;
    s.remove_prefix(static_cast<size_t>(-sequence(s)));
    append(out, kReplacement);
  }
}

bool is_normal(std::string_view s, Form form) {
  const CharTable& table = CharTable::get();
  const char *p = s.data(), *end = p + s.size();
  int last = 0;  // combining class of the character before
  while (p < end) {
    if (static_cast<unsigned char>(*p) < 0x80) {
      ++p, last = 0;
      continue;
    }
    if (form != Form::Nfc) return false;
    const char32_t c = next_char(p);
    const uint16_t t = table[c];
    if (t & kNotNfc) return false;
    if (t & kCombining) {
      const int now = combining_class(c);
      if (last > now) return false;
      last = now;
    } else {
      last = 0;
    }
  }
  return true;
}

size_t normal_boundary(std::string_view s, Form form) {
  const CharTable& table = CharTable::get();
  const uint16_t joins = form == Form::Nfc || form == Form::Nfd ? kJoins : kJoinsCompat;
  const char *p = s.data(), *end = p + s.size();
  next_char(p);
  while (p < end) {
    const char* q = p;
    if (!(table[next_char(q)] & joins)) break;
    p = q;
  }
  return static_cast<size_t>(p - s.data());
}

namespace {
std::string normalize_cluster(std::string_view s, Form form) {
  utf8proc_uint8_t* raw = nullptr;
  const auto n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(s.data()),
                              static_cast<utf8proc_ssize_t>(s.size()), &raw, options(form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(raw, &std::free);
  require(n >= 0, Fault::Data, "the text cannot be normalised: ", utf8proc_errmsg(n));
  return std::string(reinterpret_cast<const char*>(raw), static_cast<size_t>(n));
}
}  // namespace

std::string normalize(std::string_view s, Form form) {
  std::string out;
  while (!s.empty()) {
    const std::string_view cluster = s.substr(0, normal_boundary(s, form));
    if (is_normal(cluster, form))
      out += cluster;
    else
      out += normalize_cluster(cluster, form);
    s.remove_prefix(cluster.size());
  }
  return out;
}

void append_lower(std::string& out, char32_t c) {
  if (c == 0x130)
    out += "i\xCC\x87";  // the only lower case of two characters that needs no context
  else
    append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

std::vector<size_t> grapheme_ends(std::string_view s) {
  std::vector<size_t> ends;
  utf8proc_int32_t state = 0, before = 0;
  for (const char *p = s.data(), *end = p + s.size(); p < end;) {
    const auto begin = static_cast<size_t>(p - s.data());
    const auto c = static_cast<utf8proc_int32_t>(next_char(p));
    if (begin > 0 && utf8proc_grapheme_break_stateful(before, c, &state)) ends.push_back(begin);
    before = c;
  }
  if (!s.empty()) ends.push_back(s.size());
  return ends;
}

}  // namespace apus::unicode
