// SPDX-License-Identifier: Apache-2.0
// Numbers and texts laid out as Python's format specifications say.
#include "text/jinja/format_spec.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/strings.h"

namespace apus::jinja {

namespace {

std::string group_digits(const std::string& digits, char separator, size_t every) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i && (digits.size() - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out;
}

// Zeros that fill up to the width are grouped like digits.
std::string group_number(const std::string& text, const FormatSpec& spec, size_t sign) {
  if (!spec.grouping) return text;
  size_t end = 0;
  const bool other_base = std::string_view("xXob").find(spec.type) != std::string_view::npos && spec.type;
  while (end < text.size() && std::isxdigit(static_cast<unsigned char>(text[end])) &&
         (other_base || std::isdigit(static_cast<unsigned char>(text[end]))))
    ++end;
  std::string digits = text.substr(0, end);
  const auto grouped = [&] { return group_digits(digits, spec.grouping, other_base ? 4 : 3) + text.substr(end); };
  if (spec.fill == "0" && spec.align == '=' && end > 0) {
    const size_t separators = static_cast<size_t>(spec.width) / (other_base ? 5 : 4), rest = text.size() - end + sign;
    const auto width = static_cast<size_t>(spec.width);
    if (width > rest + separators + digits.size()) digits.insert(0, width - rest - separators - digits.size(), '0');
    while (grouped().size() + sign < width) digits.insert(0, 1, '0');
  }
  return grouped();
}

std::string print_real(double value, char type, int64_t precision, bool alternate) {
  if (std::isnan(value)) return std::string_view("EFG").find(type) != std::string_view::npos ? "NAN" : "nan";
  if (std::isinf(value)) return std::string_view("EFG").find(type) != std::string_view::npos ? "INF" : "inf";
  const char form[] = {
      '%', alternate ? '#' : '.', alternate ? '.' : '*', alternate ? '*' : type, alternate ? type : '\0', '\0'};
  const int digits = static_cast<int>(std::min<int64_t>(precision, 2000));
  std::string out(static_cast<size_t>(digits) + 350, '\0');
  out.resize(static_cast<size_t>(std::snprintf(out.data(), out.size(), form, digits, value)));
  return out;
}

// 1.2e+02, without zeros at the end of the digits.
std::string with_exponent(double value, int64_t digits) {
  std::string text = print_real(value, 'e', digits, false);
  const size_t e = text.find('e'), last = text.find_last_not_of('0', e - 1);
  if (text.find('.') < e) text.erase(last + (text[last] != '.'), e - last - (text[last] != '.'));
  return text;
}

FormatSpec parse_spec(std::string_view text) {
  FormatSpec spec;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  size_t at = 0;
  bool fill_given = false;
  if (!text.empty()) {
    const size_t first = point_size(text, 0);
    if (first < text.size() && is_align(text[first])) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      fill_given = true;
      at = first + 1;
    } else if (is_align(text[0])) {
      spec.align = text[at++];
    }
  }
  const auto flag = [&](char c) { return at < text.size() && text[at] == c && (++at, true); };
  spec.has_sign = at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ');
  if (spec.has_sign) spec.sign = text[at++];
  spec.alternate = flag('#');
  spec.zero = flag('0');
  if (spec.zero && spec.align) {  // no more than what to fill with, if that is not said
    if (!fill_given) spec.fill = "0";
    spec.zero = false;
  }
  const auto number = [&] {
    int64_t value = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
      value = value * 10 + (text[at] - '0');
      if (value > kWidest) trouble("a format wider than ", kWidest);
    }
    return value;
  };
  spec.width = number();
  if (flag(','))
    spec.grouping = ',';
  else if (flag('_'))
    spec.grouping = '_';
  if (flag('.')) spec.precision = number();
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size() ||
      (spec.type && std::string_view("bcdeEfFgGnosxX%").find(spec.type) == std::string_view::npos)) {
    trouble("Invalid format specifier '", text, "'");
  }
  const std::string_view groupable = spec.grouping == ',' ? "deEfFgG%" : "deEfFgG%boxX";
  if (spec.grouping && spec.type && groupable.find(spec.type) == std::string_view::npos)
    trouble("Cannot specify '", spec.grouping, "' with '", spec.type, "'.");
  return spec;
}

}  // namespace

std::string pad(std::string text, const FormatSpec& spec, char default_align, std::string_view sign) {
  const char align = spec.align ? spec.align : default_align;
  const int64_t missing = spec.width - count_points(text) - static_cast<int64_t>(sign.size());
  const auto fill = [&](int64_t count) {
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  if (missing <= 0) return std::string(sign) + text;
  if (align == '=') return std::string(sign) + fill(missing) + text;
  text = std::string(sign) + text;
  if (align == '<') return text + fill(missing);
  if (align == '>') return fill(missing) + text;
  return fill(missing / 2) + text + fill(missing - missing / 2);
}

std::string format_real(double value, FormatSpec spec) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double size = std::fabs(value);
  std::string text;
  if (spec.type == 0 && spec.precision < 0) {
    text = float_repr(size);
  } else if (spec.type == '%') {
    text = print_real(size * 100, 'f', spec.precision < 0 ? 6 : spec.precision, spec.alternate) + "%";
  } else if (spec.type == 0) {  // like g, but with at least one digit after the point
    const int64_t precision = std::max<int64_t>(spec.precision, 1);
    text = print_real(size, 'g', precision, spec.alternate);
    const bool whole = text.find_first_of(".en") == std::string::npos;
    if (whole && size != 0 && static_cast<int64_t>(text.size()) >= precision)  // no room for that digit
      text = with_exponent(size, precision - 1);
    else if (whole)
      text += ".0";
  } else {
    const char type = spec.type == 'n' ? 'g' : spec.type;
    const int64_t least = type == 'g' || type == 'G' ? 1 : 0;
    text = print_real(size, type, spec.precision < 0 ? 6 : std::max(spec.precision, least), spec.alternate);
  }
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.zero && !spec.align) {
    spec.align = '=';
    spec.fill = "0";
  }
  return pad(group_number(text, spec, sign.size()), spec, '>', sign);
}

std::string format_integer(const Value& value, FormatSpec spec) {
  if (spec.type == 's') trouble("Unknown format code 's' for object of type 'int'");
  if (std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos && spec.type)
    return format_real(to_real(value), spec);
  if (spec.precision >= 0) trouble("Precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    if (spec.has_sign || spec.alternate) trouble("Sign or # not allowed with integer format specifier 'c'");
    const int64_t point = to_index(value, "%c");
    if (point < 0 || point > 0x10FFFF) trouble("%c arg not in range(0x110000)");
    std::string out;
    append_point(out, static_cast<char32_t>(point));
    return pad(out, spec, '<');
  }
  const char type = spec.type ? spec.type : 'd';
  const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  std::string text = integer_text(value, base);
  std::string sign = spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (text[0] == '-') {
    sign = "-";
    text.erase(0, 1);
  }
  if (type == 'X') text = upper(text);
  if (spec.alternate && base != 10) sign += std::string("0") + type;
  if (spec.zero && !spec.align) {
    spec.align = '=';
    spec.fill = "0";
  }
  return pad(group_number(text, spec, sign.size()), spec, '>', sign);
}

std::string format_value(Heap& heap, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return to_text(heap, value);
  if (value.is(Kind::Undefined)) fail_undefined(value);
  FormatSpec spec = parse_spec(spec_text);
  if (value.is(Kind::Float) && spec.type && std::string_view("eEfFgGn%").find(spec.type) == std::string_view::npos)
    trouble("Unknown format code '", spec.type, "' for object of type 'float'");
  if (value.is(Kind::Float)) return format_real(value.real(), spec);
  if (value.is_integral()) return format_integer(value, spec);
  if (!value.is(Kind::String)) trouble("unsupported format string passed to ", type_name(value), ".__format__");
  if (spec.type && spec.type != 's') trouble("Unknown format code '", spec.type, "' for object of type 'str'");
  if (spec.has_sign) trouble("Sign not allowed in string format specifier");
  if (spec.alternate) trouble("Alternate form (#) not allowed in string format specifier");
  if (spec.align == '=') trouble("'=' alignment not allowed in string format specifier");
  if (spec.grouping) trouble("Cannot specify '", spec.grouping, "' with 's'.");
  if (spec.zero && !spec.align) spec.fill = "0";
  std::string text = value.bytes();
  if (spec.precision >= 0) text.resize(byte_offset(text, spec.precision));
  return pad(std::move(text), spec, '<');
}

}  // namespace apus::jinja
