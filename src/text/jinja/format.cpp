// SPDX-License-Identifier: Apache-2.0
// Python's ways to format: '%s' % x, '{}'.format(x), and rounding.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/format_spec.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/strings.h"

namespace apus::jinja {

namespace {

// What repr() gives, as ascii() does: other characters become escapes.
std::string only_ascii(std::string_view text) {
  std::string out;
  char escape[16];
  for (const char32_t point : decode(text)) {
    const auto value = static_cast<unsigned>(point);
    std::snprintf(escape, sizeof escape, value < 0x100 ? "\\x%02x" : value < 0x10000 ? "\\u%04x" : "\\U%08x", value);
    if (value < 0x80)
      out += static_cast<char>(value);
    else
      out += escape;
  }
  return out;
}

// Python's %-format.
class Percent {
 public:
  Percent(Interpreter& in, const Value& format, const Value& values) : in_(in), format_(format), values_(values) {
    if (values.is(Kind::Tuple))
      items_ = values.as<ListObject>().items;
    else
      items_ = {values};
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
    // As Python: what can be subscripted may be left over, for it could have been a mapping.
    const bool subscripted =
        values_.is(Kind::Dict) || values_.is(Kind::List) || values_.is(Kind::Range) || values_.is(Kind::Undefined);
    const bool all_used = next_ >= items_.size() || subscripted;
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
    if (peek(text) == '%') {
      out_ += '%';
      return;
    }
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
      has_named = true;
      at_ = close + 1;
    }
    FormatSpec spec;
    for (;; ++at_) {
      const char c = peek(text);
      if (c == '-')
        spec.align = '<';
      else if (c == '+' || (c == ' ' && spec.sign != '+'))
        spec.sign = c;
      else if (c == '#')
        spec.alternate = true;
      else if (c == '0')
        spec.zero = true;
      else if (c != ' ')
        break;
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

  void convert(FormatSpec spec, const Value& value) {
    const char type = spec.type;
    if (type == 's' || type == 'r' || type == 'a') {
      std::string text = type == 's' ? to_text(in_.heap, value) : repr(in_.heap, value);
      if (type == 'a') text = only_ascii(text);
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
    if (type == 'c' && value.is_integral()) {
      const int64_t point = to_index(value, "%c");
      if (point < 0 || point > 0x10FFFF) trouble("%c arg not in range(0x110000)");
      std::string text;
      append_point(text, static_cast<char32_t>(point));
      out_ += pad(std::move(text), spec, '>');
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
      FormatSpec inner = spec;
      inner.align = 0;
      inner.width = 0;
      const std::string bare = format_integer(whole, inner);
      const size_t front = bare.find_first_not_of("+- ");  // behind sign and prefix
      const size_t prefix = spec.alternate && !decimal ? 2 : 0;
      inner.zero = true;
      inner.width = digits + static_cast<int64_t>(front + prefix);
      std::string text = format_integer(whole, inner);
      if (spec.zero && spec.align != '<') {
        inner.width = std::max(inner.width, spec.width);
        text = format_integer(whole, inner);
      }
      out_ += pad(std::move(text), spec, '>');
      return;
    }
    out_ += format_integer(whole, spec);
  }

  Interpreter& in_;
  const Value& format_;
  const Value& values_;
  std::vector<Value> items_;
  size_t next_ = 0, at_ = 0;
  std::string out_;
};

}  // namespace

Value format_percent(Interpreter& in, const Value& format, const Value& values) {
  return Percent(in, format, values).run();
}

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
  // By whole numbers, which are exact: ten times the value, and one for what is behind the point.
  if (digits < 0) {
    const double real = value.real(), behind = real - std::trunc(real);
    const Value ten = arithmetic(heap, '*', real_to_integer(heap, real), int64_t{10});
    const Value all = arithmetic(heap, '+', ten, int64_t{behind > 0} - int64_t{behind < 0});
    return std::copysign(to_real(arithmetic(heap, '/', round_value(heap, all, digits - 1), int64_t{10})), real);
  }
  // Rounding half to even on the exact decimal value is what printf does.
  char buffer[800];
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), value.real());
  return std::strtod(buffer, nullptr);
}

// '{0.name!r:>8}'.format(...)
Value format_braces(Interpreter& in, const Value& self, const Args& args, int depth = 0);

namespace {

// The value that a field name like "0.user[name]" stands for. `automatic`: the next number of a field without one; -1
// once numbers are written out.
Value find_field(Interpreter& in, std::string_view field, const Args& args, int64_t& automatic) {
  const size_t end = field.find_first_of(".[");
  const std::string_view first = field.substr(0, end);
  std::string_view rest = end == std::string_view::npos ? std::string_view() : field.substr(end);
  Value value;
  const bool number = first.find_first_not_of("0123456789") == std::string_view::npos;
  if (number) {
    if (first.empty() ? automatic < 0 : automatic > 0)
      trouble("cannot switch between automatic field numbering and manual field specification");
    const int64_t at = first.empty() ? automatic : to_index(parse_integer(in.heap, first, 10), "format()");
    automatic = first.empty() ? automatic + 1 : -1;
    if (at >= static_cast<int64_t>(args.positional.size()))
      trouble("Replacement index ", at, " out of range for positional args tuple");
    value = args.positional[static_cast<size_t>(at)];
  } else {
    const auto it =
        std::find_if(args.keyword.begin(), args.keyword.end(), [&](const auto& k) { return k.first == first; });
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

std::string expand_braces(Interpreter& in, std::string_view text, const Args& args, int depth, int64_t& automatic,
                          bool escape) {
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
      const std::string spec = colon == std::string_view::npos
                                   ? ""
                                   : expand_braces(in, inside.substr(colon + 1), args, depth + 1, automatic, false);
      if (conversion == 'r')
        value = in.text(repr(in.heap, value));
      else if (conversion == 'a')
        value = in.text(only_ascii(repr(in.heap, value)));
      else if (conversion == 's')
        value = in.text(to_text(in.heap, value));
      else if (conversion)
        trouble("Unknown conversion specifier ", conversion);
      const std::string piece = format_value(in.heap, value, spec);
      out += escape && !value.markup() ? escape_html(piece) : piece;
      at = end + 1;
    }
    if (out.size() > static_cast<size_t>(in.heap.budget.limits.output_bytes))
      trouble("a text larger than the output may be");
  }
  return out;
}

}  // namespace

Value format_braces(Interpreter& in, const Value& self, const Args& args, int depth) {
  int64_t automatic = 0;
  return in.heap.text(expand_braces(in, self.bytes(), args, depth, automatic, self.markup()), self.markup());
}

}  // namespace apus::jinja
