// SPDX-License-Identifier: Apache-2.0
// Filters on numbers and on values of any kind, tojson among them.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "text/jinja/filters.h"
#include "text/jinja/strings.h"

namespace apus::jinja {

Value round_value(Heap& heap, V value, int64_t digits);  // format.cpp

namespace {

// Python's int(text, base); false where it would raise.
bool to_integer(In in, std::string_view text, int64_t base, Value& out) {
  text = strip_left(strip_right(text));
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto prefix = [&](char mark) { return text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == mark; };
  for (const auto& [mark, of] : {std::pair{'x', 16}, std::pair{'o', 8}, std::pair{'b', 2}}) {
    if (!prefix(mark) || (base != of && base != 0)) continue;
    text.remove_prefix(2);
    base = of;
    if (text.starts_with('_')) text.remove_prefix(1);
    break;
  }
  if (base == 0) base = 10;
  if (text.empty() || base < 2 || base > 36 || text.size() > 4300) return false;
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const int digit = c >= '0' && c <= '9'                     ? c - '0'
                      : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                               : 99;
    if (c == '_' && i > 0 && i + 1 < text.size() && text[i - 1] != '_') continue;
    if (digit >= base) return false;
    digits += c;
  }
  out = parse_integer(in.heap, digits, static_cast<int>(base), negative);
  return true;
}

Value to_int(In in, V value, A args) {
  const Bound bound(args, "int", {"default", "base"});
  const Value fallback = bound.has(0) ? bound[0] : Value(int64_t{0});
  if (value.is(Kind::Undefined)) fail_undefined(value);
  if (value.is(Kind::Bool)) return int64_t{value.boolean()};
  if (value.is_integral()) return value;
  double real = 0;
  if (value.is(Kind::Float)) {
    real = value.real();
    if (std::isinf(real)) trouble("cannot convert float infinity to integer");
  } else if (value.is(Kind::String)) {
    Value out;
    if (to_integer(in, value.bytes(), bound.has(1) ? to_index(bound[1], "int") : 10, out)) return out;
    bool ok = false;
    real = parse_real(value.bytes(), ok);
    if (!ok) return fallback;
  } else {
    return fallback;
  }
  return std::isfinite(real) ? real_to_integer(in.heap, real) : fallback;
}

Value to_float(In in, V value, A args) {
  const Bound bound(args, "float", {"default"});
  if (value.is(Kind::Undefined)) fail_undefined(value);
  if (value.is_number()) return to_real(value);
  bool ok = false;
  const double real = value.is(Kind::String) ? parse_real(value.bytes(), ok) : 0;
  return ok ? Value(real) : bound.has(0) ? bound[0] : Value(0.0);
}

Value absolute(In in, V value, A) {
  if (value.is(Kind::Undefined)) fail_undefined(value);
  if (!value.is_number()) trouble("bad operand type for abs(): '", type_name(value), "'");
  if (value.is(Kind::Float)) return std::fabs(value.real());
  const bool negative = value.is(Kind::BigInt) ? big_negative(value) : value.is(Kind::Int) && value.integer() < 0;
  return negative ? negate(in.heap, value) : value.is(Kind::Bool) ? Value(int64_t{value.boolean()}) : value;
}

Value round_filter(In in, V value, A args) {
  const Bound bound(args, "round", {"precision", "method"});
  const int64_t digits = bound.has(0) ? to_index(bound[0], "round") : 0;
  const std::string method = bound.has(1) ? to_text(in.heap, bound[1]) : "common";
  if (value.is(Kind::Undefined)) fail_undefined(value);
  if (method != "common" && method != "ceil" && method != "floor") trouble("method must be common, ceil or floor");
  if (!value.is_number()) trouble("type ", type_name(value), " doesn't define __round__ method");
  if (method == "common") return round_value(in.heap, value, digits);
  if (digits >= 0 && value.is_integral()) return to_real(value);
  const double scale = std::pow(10.0, static_cast<double>(digits)), scaled = to_real(value) * scale;
  return ((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) + 0.0) / scale;  // no negative zero
}

Value fallback(In, V value, A args) {
  const Bound bound(args, "default", {"default_value", "boolean"});
  const bool absent = value.is(Kind::Undefined) || (bound.has(1) && truthy(bound[1]) && !truthy(value));
  if (!absent) return value;
  return bound.has(0) ? bound[0] : Value(std::make_shared<const Text>("", nullptr));
}

// The environment of chat templates has its own tojson: json.dumps with its options, and no HTML escapes.
Value tojson(In in, V value, A args) {
  const Bound bound(args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.has(0) && truthy(bound[0]);
  style.sort_keys = bound.has(3) && truthy(bound[3]);
  if (bound.given(1)) {
    style.indented = true;
    style.item_separator = ",";
    if (bound[1].is(Kind::String))
      style.indent = bound[1].bytes();
    else
      style.indent =
          std::string(static_cast<size_t>(std::clamp<int64_t>(to_index(bound[1], "tojson"), 0, 1 << 16)), ' ');
  }
  if (bound.given(2)) {
    const std::vector<Value> parts = iterate(in.heap, bound[2]);
    if (parts.size() != 2 || !parts[0].is(Kind::String) || !parts[1].is(Kind::String))
      trouble("separators must be two strings");
    style.item_separator = parts[0].bytes();
    style.key_separator = parts[1].bytes();
  }
  return in.text(to_json(in.heap, value, style));
}

Value attr(In in, V value, A args) {
  const Bound bound(args, "attr", {"name"}, 1);
  const std::string name = to_text(in.heap, bound[0]);
  if (value.is(Kind::Undefined)) fail_undefined(value);
  if (value.is(Kind::Dict) && !find_method(value, name)) return in.heap.undefined_member(value, bound[0]);
  return in.member(value, name);
}

constexpr FilterEntry kFilters[] = {
    {"abs", absolute, false},  {"attr", attr},          {"d", fallback},
    {"default", fallback},     {"float", to_float},     {"int", to_int},
    {"pprint", pretty, false}, {"round", round_filter}, {"tojson", tojson},
};

}  // namespace

FilterTable value_filters() { return {std::begin(kFilters), std::end(kFilters)}; }

namespace {

Value with_sorted_keys(Heap& heap, V value) {
  heap.budget.check_stack();
  heap.budget.work();
  if (value.is_sequence()) {
    std::vector<Value> items = value.as<ListObject>().items;
    for (Value& item : items) item = with_sorted_keys(heap, item);
    return value.is(Kind::List) ? heap.list(std::move(items)) : heap.tuple(std::move(items));
  }
  if (!value.is(Kind::Dict)) return value;
  auto* sorted = heap.make<DictObject>();
  for (const auto& [key, item] : value.as<DictObject>().items)
    sorted->items.emplace_back(key, with_sorted_keys(heap, item));
  std::stable_sort(sorted->items.begin(), sorted->items.end(), [&](const auto& a, const auto& b) {
    const bool comparable =
        (a.first.is_number() && b.first.is_number()) || (a.first.kind() == b.first.kind() && a.first.is(Kind::String));
    return comparable ? compare(heap, a.first, b.first, "<") < 0
                      : std::string_view(type_name(a.first)) < type_name(b.first);
  });
  return {Kind::Dict, sorted};
}

// What does not fit a line is broken after its commas.
std::string lay_out(Heap& heap, V value, int64_t indent, int64_t after) {
  constexpr int64_t kWidth = 80;
  heap.budget.check_stack();
  const std::string flat = repr(heap, value);
  const bool breakable = (value.is_sequence() && !value.as<ListObject>().items.empty()) || value.is(Kind::Dict);
  if (!breakable || count_points(flat) <= kWidth - indent - after) return flat;
  const std::string newline = ",\n" + std::string(static_cast<size_t>(indent) + 1, ' ');
  std::string out;
  if (value.is(Kind::Dict)) {
    const auto& items = value.as<DictObject>().items;
    for (size_t i = 0; i < items.size(); ++i) {
      const std::string key = repr(heap, items[i].first) + ": ";
      out += (i ? newline : "{") + key +
             lay_out(heap, items[i].second, indent + 1 + count_points(key), i + 1 == items.size() ? after + 1 : 1);
    }
    return out + "}";
  }
  const bool list = value.is(Kind::List);
  const auto& items = value.as<ListObject>().items;
  for (size_t i = 0; i < items.size(); ++i) {
    out += (i      ? newline
            : list ? "["
                   : "(") +
           lay_out(heap, items[i], indent + 1, i + 1 == items.size() ? after + 1 : 1);
  }
  return out + (list ? "]" : items.size() == 1 ? ",)" : ")");
}

}  // namespace

Value pretty(In in, V value, A) { return in.text(lay_out(in.heap, with_sorted_keys(in.heap, value), 0, 0)); }

}  // namespace apus::jinja
