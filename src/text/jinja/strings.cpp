// SPDX-License-Identifier: Apache-2.0
// Code points, white space, case and classes of characters.
#include "text/jinja/strings.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "text/jinja/unicode_tables.h"

namespace apus::jinja {

namespace {

bool continues(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

template <size_t N>
bool in_ranges(const Range (&ranges)[N], char32_t point) {
  const auto* it = std::upper_bound(std::begin(ranges), std::end(ranges), point,
                                    [](char32_t p, const Range& range) { return p < range.first; });
  return it != std::begin(ranges) && point <= std::prev(it)->last;
}

utf8proc_category_t category(char32_t point) { return utf8proc_category(static_cast<utf8proc_int32_t>(point)); }

bool is_letter(char32_t point) {
  const auto c = category(point);
  return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT ||
         c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t point) { return category(point) == UTF8PROC_CATEGORY_ND; }
bool is_digit(char32_t point) { return is_decimal(point) || in_ranges(kDigits, point); }
bool is_numeric(char32_t point) {
  const auto c = category(point);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO ||
         in_ranges(kNumerals, point);
}
bool is_upper(char32_t point) { return category(point) == UTF8PROC_CATEGORY_LU || in_ranges(kOtherUpper, point); }
bool is_lower(char32_t point) { return category(point) == UTF8PROC_CATEGORY_LL || in_ranges(kOtherLower, point); }
bool is_title(char32_t point) { return category(point) == UTF8PROC_CATEGORY_LT; }
bool is_cased(char32_t point) { return is_upper(point) || is_lower(point) || is_title(point); }
bool is_case_ignorable(char32_t point) {
  const auto c = category(point);
  return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF ||
         c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK || point == '\'' || point == '.' || point == ':' ||
         point == 0xB7 || point == 0x2018 || point == 0x2019 || point == 0x2024 || point == 0x2027;
}

const SpecialCase* special(char32_t point) {
  const auto* it = std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), point,
                                    [](const SpecialCase& s, char32_t p) { return s.point < p; });
  return it != std::end(kSpecialCases) && it->point == point ? it : nullptr;
}

void add_upper(std::u32string& out, char32_t point) {
  if (point < 0x80) {
    out += point >= 'a' && point <= 'z' ? point - 32 : point;
  } else if (const SpecialCase* rule = special(point)) {
    out += rule->upper;
  } else if (point >= 0x1F80 && point <= 0x1FAF) {  // Greek with iota below: the capital, then a capital iota
    constexpr char32_t kCapitals[] = {0x1F08, 0x1F28, 0x1F68};
    out += kCapitals[(point - 0x1F80) / 16] + (point & 7);
    out += char32_t{0x399};
  } else {
    out += static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(point)));
  }
}

void add_title(std::u32string& out, char32_t point) {
  if (const SpecialCase* rule = special(point)) out += rule->title;
  else out += static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(point)));
}

// A capital sigma at the end of a word becomes the final small one.
bool is_final_sigma(const std::u32string& text, size_t at) {
  size_t before = at;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  size_t after = at + 1;
  while (after < text.size() && is_case_ignorable(text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}

void add_lower(std::u32string& out, const std::u32string& text, size_t at) {
  const char32_t point = text[at];
  if (point < 0x80) out += point >= 'A' && point <= 'Z' ? point + 32 : point;
  else if (point == 0x130) out += U"i\u0307";
  else if (point == 0x3A3) out += is_final_sigma(text, at) ? char32_t{0x3C2} : char32_t{0x3C3};
  else out += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point)));
}

bool is_line_end(char32_t point) {
  return (point >= 0xA && point <= 0xD) || (point >= 0x1C && point <= 0x1E) || point == 0x85 || point == 0x2028 ||
         point == 0x2029;
}

size_t previous_point(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && continues(text, at)) --at;
  return at;
}

bool class_of(char32_t point, Class what) {
  switch (what) {
    case Class::Alpha: return is_letter(point);
    case Class::Digit: return is_digit(point);
    case Class::Decimal: return is_decimal(point);
    case Class::Numeric: return is_numeric(point);
    case Class::Alnum: return is_letter(point) || is_digit(point) || is_numeric(point);
    case Class::Space: return is_space(point);
    case Class::Printable: return is_printable(point);
    case Class::Ascii: return point < 0x80;
    default: return false;
  }
}

bool cased_as(const std::u32string& points, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  bool any = false;
  for (const char32_t point : points) {
    if (other(point) || is_title(point)) return false;
    any = any || wanted(point);
  }
  return any;
}

bool is_title_text(const std::u32string& points) {
  bool any = false, inside = false;
  for (const char32_t point : points) {
    if (is_upper(point) || is_title(point)) {
      if (inside) return false;
      any = inside = true;
    } else if (is_lower(point)) {
      if (!inside) return false;
      any = true;
    } else {
      inside = false;
    }
  }
  return any;
}

bool is_identifier(const std::u32string& points) {
  if (points.empty() || !(points[0] == '_' || is_letter(points[0]))) return false;
  return std::all_of(points.begin(), points.end(), [](char32_t p) {
    const auto c = category(p);
    return p == '_' || is_letter(p) || is_decimal(p) || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_MN ||
           c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_PC || p == 0xB7;
  });
}

}  // namespace

size_t point_size(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const size_t want = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (size_t i = 1; i < want; ++i) {
    if (!continues(text, at + i)) return 1;
  }
  return want;
}

char32_t point_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  switch (point_size(text, at)) {
    case 2: return (byte(0) & 31) << 6 | (byte(1) & 63);
    case 3: return (byte(0) & 15) << 12 | (byte(1) & 63) << 6 | (byte(2) & 63);
    case 4: return (byte(0) & 7) << 18 | (byte(1) & 63) << 12 | (byte(2) & 63) << 6 | (byte(3) & 63);
    default: return byte(0) < 0x80 ? byte(0) : 0xFFFD;
  }
}

void append_point(std::string& out, char32_t point) {
  if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) point = 0xFFFD;
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6), put(0x80 | (point & 63));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12), put(0x80 | (point >> 6 & 63)), put(0x80 | (point & 63));
  } else {
    put(0xF0 | point >> 18), put(0x80 | (point >> 12 & 63)), put(0x80 | (point >> 6 & 63)), put(0x80 | (point & 63));
  }
}

std::u32string decode(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size(); at += point_size(text, at)) out += point_at(text, at);
  return out;
}

std::string encode(std::u32string_view points) {
  std::string out;
  out.reserve(points.size());
  for (const char32_t point : points) append_point(out, point);
  return out;
}

int64_t count_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

size_t byte_offset(std::string_view text, int64_t point) {
  size_t at = 0;
  for (; point > 0 && at < text.size(); --point) at += point_size(text, at);
  return at;
}

std::vector<std::string> split_points(std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t size = point_size(text, at);
    out.emplace_back(text.substr(at, size));
    at += size;
  }
  return out;
}

bool is_space(char32_t point) {
  return (point >= 9 && point <= 13) || (point >= 0x1C && point <= 0x20) || point == 0x85 || point == 0xA0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
         point == 0x202F || point == 0x205F || point == 0x3000;
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty() && is_space(point_at(text, 0))) text.remove_prefix(point_size(text, 0));
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    const size_t at = previous_point(text, text.size());
    if (!is_space(point_at(text, at))) break;
    text = text.substr(0, at);
  }
  return text;
}

std::string_view strip_left(std::string_view text, std::string_view any_of) {
  const std::u32string set = decode(any_of);
  while (!text.empty() && set.find(point_at(text, 0)) != std::u32string::npos) text.remove_prefix(point_size(text, 0));
  return text;
}

std::string_view strip_right(std::string_view text, std::string_view any_of) {
  const std::u32string set = decode(any_of);
  while (!text.empty()) {
    const size_t at = previous_point(text, text.size());
    if (set.find(point_at(text, at)) == std::u32string::npos) break;
    text = text.substr(0, at);
  }
  return text;
}

size_t find_bytes(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : std::string_view::npos;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> out;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    size_t size = point_size(text, at);
    if (!is_line_end(point_at(text, at))) {
      at += size;
      continue;
    }
    if (text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n') size = 2;
    out.push_back(text.substr(start, at - start + (keep_ends ? size : 0)));
    start = at += size;
  }
  if (start < text.size()) out.push_back(text.substr(start));
  return out;
}

std::string upper(std::string_view text) {
  std::u32string out;
  for (const char32_t point : decode(text)) add_upper(out, point);
  return encode(out);
}

std::string lower(std::string_view text) {
  const std::u32string points = decode(text);
  std::u32string out;
  for (size_t i = 0; i < points.size(); ++i) add_lower(out, points, i);
  return encode(out);
}

std::string title(std::string_view text) {
  const std::u32string points = decode(text);
  std::u32string out;
  bool inside = false;
  for (size_t i = 0; i < points.size(); ++i) {
    if (inside) add_lower(out, points, i);
    else add_title(out, points[i]);
    inside = is_cased(points[i]);
  }
  return encode(out);
}

std::string capitalize(std::string_view text) {
  const std::u32string points = decode(text);
  std::u32string out;
  for (size_t i = 0; i < points.size(); ++i) {
    if (i == 0) add_title(out, points[i]);
    else add_lower(out, points, i);
  }
  return encode(out);
}

std::string swap_case(std::string_view text) {
  const std::u32string points = decode(text);
  std::u32string out;
  for (size_t i = 0; i < points.size(); ++i) {
    if (is_upper(points[i])) add_lower(out, points, i);
    else if (is_lower(points[i])) add_upper(out, points[i]);
    else out += points[i];
  }
  return encode(out);
}

std::string case_fold(std::string_view text) {
  std::string out;
  for (const char32_t point : decode(text)) {
    utf8proc_int32_t folded[8];
    int last = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point), folded, 8, UTF8PROC_CASEFOLD, &last);
    for (utf8proc_ssize_t i = 0; i < std::min<utf8proc_ssize_t>(count, 8); ++i) {
      append_point(out, static_cast<char32_t>(folded[i]));
    }
  }
  return out;
}

bool all_are(std::string_view text, Class what) {
  const std::u32string points = decode(text);
  switch (what) {
    case Class::Upper: return cased_as(points, is_upper, is_lower);
    case Class::Lower: return cased_as(points, is_lower, is_upper);
    case Class::Title: return is_title_text(points);
    case Class::Identifier: return is_identifier(points);
    default: break;
  }
  const bool when_empty = what == Class::Printable || what == Class::Ascii;
  return points.empty() ? when_empty
                        : std::all_of(points.begin(), points.end(), [&](char32_t p) { return class_of(p, what); });
}

bool is_printable(char32_t point) {
  switch (category(point)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return point == ' ';
    default: return true;
  }
}

bool is_word(char32_t point) { return point == '_' || class_of(point, Class::Alnum); }

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace apus::jinja
