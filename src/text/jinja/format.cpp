// SPDX-License-Identifier: Apache-2.0
// Python's ways to format: '%s' % x, '{}'.format(x), and rounding.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/interpreter.h"
#include "text/jinja/strings.h"

namespace apus::jinja {

namespace {

constexpr int64_t kWidest = 1 << 20;

struct Spec {  // of one placeholder
  std::string fill = " ";
  char align = 0, sign = '-', type = 0;
  bool alternate = false, zero = false;
  char grouping = 0;
  int64_t width = 0, precision = -1;
};

std::string pad(std::string text, const Spec& spec, char default_align, std::string_view sign = "") {
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

std::string group_digits(const std::string& digits, char separator, size_t every) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i && (digits.size() - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out;
}

std::string group_number(const std::string& text, const Spec& spec) {
  if (!spec.grouping) return text;
  size_t end = 0;
  const bool other_base = std::string_view("xXob").find(spec.type) != std::string_view::npos && spec.type;
  while (end < text.size() && std::isxdigit(static_cast<unsigned char>(text[end])) && (other_base || std::isdigit(static_cast<unsigned char>(text[end])))) ++end;
  return group_digits(text.substr(0, end), spec.grouping, other_base ? 4 : 3) + text.substr(end);
}

std::string print_real(double value, char type, int64_t precision, bool alternate) {
  if (std::isnan(value)) return std::string_view("EFG").find(type) != std::string_view::npos ? "NAN" : "nan";
  if (std::isinf(value)) return std::string_view("EFG").find(type) != std::string_view::npos ? "INF" : "inf";
  const char form[] = {'%', alternate ? '#' : '.', alternate ? '.' : '*', alternate ? '*' : type, alternate ? type : '\0', '\0'};
  const int digits = static_cast<int>(std::min<int64_t>(precision, 2000));
  std::string out(static_cast<size_t>(digits) + 350, '\0');
  out.resize(static_cast<size_t>(std::snprintf(out.data(), out.size(), form, digits, value)));
  return out;
}

std::string format_real(double value, Spec spec) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double size = std::fabs(value);
  std::string text;
  if (spec.type == 0 && spec.precision < 0) {
    text = float_repr(size);
  } else if (spec.type == '%') {
    text = print_real(size * 100, 'f', spec.precision < 0 ? 6 : spec.precision, spec.alternate) + "%";
  } else if (spec.type == 0) {  // like g, but with at least one digit after the point
    text = print_real(size, 'g', std::max<int64_t>(spec.precision, 1), spec.alternate);
    if (text.find_first_of(".en") == std::string::npos) text += ".0";
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
  return pad(group_number(text, spec), spec, '>', sign);
}

std::string format_integer(Heap& heap, const Value& value, Spec spec) {
  if (spec.type == 's') trouble("Unknown format code 's' for object of type 'int'");
  if (std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos && spec.type) return format_real(to_real(value), spec);
  if (spec.precision >= 0) trouble("Precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    std::string out;
    append_point(out, static_cast<char32_t>(to_index(value, "%c")));
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
  static_cast<void>(heap);
  return pad(group_number(text, spec), spec, '>', sign);
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  size_t at = 0;
  if (!text.empty()) {
    const size_t first = point_size(text, 0);
    if (first < text.size() && is_align(text[first])) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      at = first + 1;
    } else if (is_align(text[0])) {
      spec.align = text[at++];
    }
  }
  const auto flag = [&](char c) { return at < text.size() && text[at] == c && (++at, true); };
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) spec.sign = text[at++];
  spec.alternate = flag('#');
  spec.zero = flag('0');
  const auto number = [&] {
    int64_t value = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
      value = value * 10 + (text[at] - '0');
      if (value > kWidest) trouble("a format wider than ", kWidest);
    }
    return value;
  };
  spec.width = number();
  if (flag(',')) spec.grouping = ',';
  else if (flag('_')) spec.grouping = '_';
  if (flag('.')) spec.precision = number();
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size() || (spec.type && std::string_view("bcdeEfFgGnosxX%").find(spec.type) == std::string_view::npos)) {
    trouble("Invalid format specifier '", text, "'");
  }
  return spec;
}

std::string format_value(Heap& heap, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return to_text(heap, value);
  if (value.is(Kind::Undefined)) fail_undefined(value);
  Spec spec = parse_spec(spec_text);
  if (value.is(Kind::Float)) return format_real(value.real(), spec);
  if (value.is_integral()) return format_integer(heap, value, spec);
  if (!value.is(Kind::String)) trouble("unsupported format string passed to ", type_name(value), ".__format__");
  if (spec.type && spec.type != 's') trouble("Unknown format code '", spec.type, "' for object of type 'str'");
  if (spec.zero && !spec.align) spec.fill = "0";
  std::string text = value.bytes();
  if (spec.precision >= 0) text.resize(byte_offset(text, spec.precision));
  return pad(std::move(text), spec, '<');
}

// Python's %-format.
class Percent {
 public:
  Percent(Interpreter& in, const Value& format, const Value& values) : in_(in), format_(format), values_(values) {
    if (values.is(Kind::Tuple)) items_ = values.as<ListObject>().items;
    else items_ = {values};
  }

  Value run() {
    const std::string& text = format_.bytes();
    for (at_ = 0; at_ < text.size(); ++at_) {
      if (text[at_] != '%') {
        out_ += text[at_];
      } else {
        ++at_;
        placeholder(text);
      }
    }
    const bool all_used = next_ >= items_.size() || values_.is(Kind::Dict) || (values_.is(Kind::List) && next_ == 0 && named_);
    if (!all_used) trouble("not all arguments converted during string formatting");
    return in_.heap.text(std::move(out_), format_.markup());
  }

 private:
  Value take() {
    if (next_ >= items_.size()) trouble("not enough arguments for format string");
    return items_[next_++];
  }
  char peek(const std::string& text) const {
    if (at_ >= text.size()) trouble("incomplete format");
    return text[at_];
  }

  void placeholder(const std::string& text) {
    Value named;
    bool has_named = false;
    if (peek(text) == '(') {
      const size_t close = text.find(')', at_);
      if (close == std::string::npos) trouble("incomplete format key");
      if (!values_.is(Kind::Dict)) trouble("format requires a mapping");
      const Value key = in_.text(text.substr(at_ + 1, close - at_ - 1));
      const Value* found = values_.as<DictObject>().find(in_.heap, key);
      if (!found) trouble("KeyError: '", key.bytes(), "'");
      named = *found;
      has_named = named_ = true;
      at_ = close + 1;
    }
    Spec spec;
    for (;; ++at_) {
      const char c = peek(text);
      if (c == '-') spec.align = '<';
      else if (c == '+' || (c == ' ' && spec.sign != '+')) spec.sign = c;
      else if (c == '#') spec.alternate = true;
      else if (c == '0') spec.zero = true;
      else if (c != ' ') break;
    }
    spec.width = number(text);
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (peek(text) == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(0, number(text));
    }
    while (std::string_view("hlL").find(peek(text)) != std::string_view::npos) ++at_;
    spec.type = text[at_];
    if (spec.type == '%') {
      out_ += '%';
      return;
    }
    convert(spec, has_named ? named : take());
  }

  int64_t number(const std::string& text) {
    int64_t value = 0;
    if (peek(text) == '*') {
      ++at_;
      value = to_index(take(), "* wants int");
    }
    for (; at_ < text.size() && text[at_] >= '0' && text[at_] <= '9'; ++at_) {
      value = std::min<int64_t>(value * 10 + (text[at_] - '0'), kWidest + 1);
    }
    if (value > kWidest || value < -kWidest) trouble("a format wider than ", kWidest);
    return value;
  }

  void convert(Spec spec, const Value& value) {
    const char type = spec.type;
    if (type == 's' || type == 'r' || type == 'a') {
      std::string text = type == 's' ? to_text(in_.heap, value) : repr(in_.heap, value);
      if (format_.markup() && !value.markup()) text = escape_html(text);
      if (spec.precision >= 0) text.resize(byte_offset(text, spec.precision));
      out_ += pad(std::move(text), spec, '>');
      return;
    }
    if (value.is(Kind::Undefined)) fail_undefined(value);
    if (type == 'c' && value.is(Kind::String) && length(value) == 1) {
      out_ += pad(value.bytes(), spec, '>');
      return;
    }
    if (spec.align == '<') spec.zero = false;
    if (std::string_view("eEfFgG").find(type) != std::string_view::npos) {
      if (!value.is_number()) trouble("must be real number, not ", type_name(value));
      out_ += format_real(to_real(value), spec);
      return;
    }
    if (std::string_view("diuxXoc").find(type) == std::string_view::npos) {
      trouble("unsupported format character '", type, "' (0x", integer_text(int64_t{type}, 16), ")");
    }
    if (!value.is_number()) trouble("%", type, " format: a real number is required, not ", type_name(value));
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    if (value.is(Kind::Float) && !decimal) trouble("%", type, " format: an integer is required, not float");
    const int64_t digits = spec.precision;
    spec.precision = -1;
    spec.type = decimal ? 'd' : type;
    const Value whole = value.is(Kind::Float) ? real_to_integer(in_.heap, value.real()) : value;
    if (digits > 0) {  // at least so many digits
      Spec inner;
      inner.type = spec.type;
      inner.zero = true;
      inner.width = digits + (integer_text(whole)[0] == '-');
      out_ += pad(format_integer(in_.heap, whole, inner), spec, '>');
      return;
    }
    out_ += format_integer(in_.heap, whole, spec);
  }

  Interpreter& in_;
  const Value& format_;
  const Value& values_;
  std::vector<Value> items_;
  size_t next_ = 0, at_ = 0;
  bool named_ = false;
  std::string out_;
};

}  // namespace

Value format_percent(Interpreter& in, const Value& format, const Value& values) { return Percent(in, format, values).run(); }

Value round_value(Heap& heap, const Value& value, int64_t digits) {
  if (!value.is(Kind::Float)) {
    if (digits >= 0) return value.is(Kind::Bool) ? Value(int64_t{value.boolean()}) : value;
    if (digits < -4000) return int64_t{0};
    const Value unit = arithmetic(heap, 'p', int64_t{10}, -digits);
    const Value rest = arithmetic(heap, '%', value, unit), down = arithmetic(heap, '-', value, rest);
    const int half = compare_numbers(arithmetic(heap, '*', rest, int64_t{2}), unit);
    const Value even = arithmetic(heap, '%', arithmetic(heap, 'f', down, unit), int64_t{2});
    return half > 0 || (half == 0 && truthy(even)) ? arithmetic(heap, '+', down, unit) : down;
  }
  if (!std::isfinite(value.real()) || digits > 330) return value;
  if (digits < -310) return std::copysign(0.0, value.real());
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value.real() / unit) * unit;
  }
  char buffer[800];  // rounding half to even on the exact decimal value is what printf does
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), value.real());
  return std::strtod(buffer, nullptr);
}

// '{0.name!r:>8}'.format(...)
Value format_braces(Interpreter& in, const Value& self, const Args& args, int depth = 0);

namespace {

// The value that a field name like "0.user[name]" stands for.
Value find_field(Interpreter& in, std::string_view field, const Args& args, int64_t& automatic) {
  const size_t end = field.find_first_of(".[");
  const std::string_view first = field.substr(0, end);
  std::string_view rest = end == std::string_view::npos ? std::string_view() : field.substr(end);
  Value value;
  const bool number = first.find_first_not_of("0123456789") == std::string_view::npos;
  if (number) {
    const int64_t at = first.empty() ? automatic++ : to_index(parse_integer(in.heap, first, 10), "format()");
    if (at >= static_cast<int64_t>(args.positional.size())) trouble("Replacement index ", at, " out of range for positional args tuple");
    value = args.positional[static_cast<size_t>(at)];
  } else {
    const auto it = std::find_if(args.keyword.begin(), args.keyword.end(), [&](const auto& k) { return k.first == first; });
    if (it == args.keyword.end()) trouble("KeyError: '", first, "'");
    value = it->second;
  }
  while (!rest.empty()) {
    const bool member = rest[0] == '.';
    const size_t close = member ? rest.find_first_of(".[", 1) : rest.find(']');
    if (!member && close == std::string_view::npos) trouble("expected '}' before end of string");
    const std::string name(rest.substr(1, close == std::string_view::npos ? close : close - 1));
    if (name.empty()) trouble("Empty attribute in format string");
    const bool digits = name.size() < 18 && name.find_first_not_of("0123456789") == std::string::npos;
    value = member ? in.member(value, name) : in.item(value, digits ? parse_integer(in.heap, name, 10) : in.text(name));
    rest.remove_prefix(close == std::string_view::npos ? rest.size() : member ? close : close + 1);
  }
  return value;
}

std::string expand_braces(Interpreter& in, std::string_view text, const Args& args, int depth, int64_t& automatic, bool escape) {
  if (depth > 2) trouble("Max string recursion exceeded");
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if ((c == '{' || c == '}') && at + 1 < text.size() && text[at + 1] == c) {
      out += c;
      at += 2;
    } else if (c == '}') {
      trouble("Single '}' encountered in format string");
    } else if (c != '{') {
      out += c;
      ++at;
    } else {
      size_t end = at + 1;
      for (int open = 1; end < text.size(); ++end) {
        open += text[end] == '{' ? 1 : text[end] == '}' ? -1 : 0;
        if (open == 0) break;
      }
      if (end >= text.size()) trouble("Single '{' encountered in format string");
      std::string_view inside = text.substr(at + 1, end - at - 1);
      const size_t colon = inside.find(':');
      std::string_view field = inside.substr(0, colon);
      char conversion = 0;
      if (field.size() >= 2 && field[field.size() - 2] == '!') {
        conversion = field.back();
        field.remove_suffix(2);
      }
      Value value = find_field(in, field, args, automatic);
      const std::string spec = colon == std::string_view::npos ? "" : expand_braces(in, inside.substr(colon + 1), args, depth + 1, automatic, false);
      if (conversion == 'r' || conversion == 'a') value = in.text(repr(in.heap, value));
      else if (conversion == 's') value = in.text(to_text(in.heap, value));
      else if (conversion) trouble("Unknown conversion specifier ", conversion);
      const std::string piece = format_value(in.heap, value, spec);
      out += escape && !value.markup() ? escape_html(piece) : piece;
      at = end + 1;
    }
    if (out.size() > static_cast<size_t>(in.heap.budget.limits.output_bytes)) trouble("a text larger than the output may be");
  }
  return out;
}

}  // namespace

Value format_braces(Interpreter& in, const Value& self, const Args& args, int depth) {
  int64_t automatic = 0;
  return in.heap.text(expand_braces(in, self.bytes(), args, depth, automatic, self.markup()), self.markup());
}

}  // namespace apus::jinja
