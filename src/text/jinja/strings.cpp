// SPDX-License-Identifier: Apache-2.0
// Code points, white space and lines.
#include "text/jinja/strings.h"

#include <algorithm>
#include <cstring>

namespace apus::jinja {

namespace {

bool continues(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
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
    case 2:
      return (byte(0) & 31) << 6 | (byte(1) & 63);
    case 3:
      return (byte(0) & 15) << 12 | (byte(1) & 63) << 6 | (byte(2) & 63);
    case 4:
      return (byte(0) & 7) << 18 | (byte(1) & 63) << 12 | (byte(2) & 63) << 6 | (byte(3) & 63);
    default:
      return byte(0) < 0x80 ? byte(0) : 0xFFFD;
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

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace apus::jinja
