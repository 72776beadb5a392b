// SPDX-License-Identifier: Apache-2.0
// Members, items, slices, and the operators of values.
#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/strings.h"

namespace apus::jinja {

namespace {

const char* operator_sign(char op) {
  switch (op) {
    case '+':
      return "+";
    case '-':
      return "-";
    case '*':
      return "*";
    case '/':
      return "/";
    case 'f':
      return "//";
    case '%':
      return "%";
    default:
      return "** or pow()";
  }
}

// Python's slice.indices: bounds that fit a sequence of `size`.
struct SliceBounds {
  int64_t start, stop, step, count;
};

SliceBounds resolve(const Value& from, const Value& to, const Value& by, int64_t size) {
  const int64_t step = by.is(Kind::None) ? 1 : to_index(by, "slice step");
  if (step == 0) trouble("slice step cannot be zero");
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const auto bound = [&](const Value& value, int64_t absent) {
    if (value.is(Kind::None)) return absent;
    int64_t at = value.is(Kind::BigInt) ? (big_negative(value) ? low : high) : to_index(value, "slice indices");
    if (at < 0) at = at < -size ? low : at + size;
    return std::clamp(at, low, high);
  };
  const int64_t start = bound(from, step > 0 ? low : high), stop = bound(to, step > 0 ? high : low);
  const int64_t span = step > 0 ? stop - start : start - stop;
  const int64_t size_of_step = step > 0 ? step : step == INT64_MIN ? INT64_MAX : -step;
  return {start, stop, step, span <= 0 ? 0 : (span - 1) / size_of_step + 1};
}

std::string slice_text(const Text& text, const SliceBounds& bounds) {
  const std::string& bytes = text.bytes;
  if (bounds.step == 1) {
    if (bounds.count == 0) return {};
    if (text.ascii()) return bytes.substr(static_cast<size_t>(bounds.start), static_cast<size_t>(bounds.count));
    const size_t begin = byte_offset(bytes, bounds.start);
    const std::string_view rest = std::string_view(bytes).substr(begin);
    return std::string(rest.substr(0, byte_offset(rest, bounds.count)));
  }
  const std::u32string points = decode(bytes);
  std::u32string out;
  for (int64_t i = 0; i < bounds.count; ++i) out += points[static_cast<size_t>(bounds.start + i * bounds.step)];
  return encode(out);
}

bool number_member(const Value& base, const std::string& name, Value& out) {
  if (!base.is_number()) return false;
  if (name == "real" || (name == "numerator" && base.is_integral()))
    out = base.is(Kind::Bool) ? Value(int64_t{base.boolean()}) : base;
  else if (name == "imag")
    out = base.is(Kind::Float) ? Value(0.0) : Value(int64_t{0});
  else if (name == "denominator" && base.is_integral())
    out = int64_t{1};
  else
    return false;
  return true;
}

}  // namespace

Value Interpreter::bind_method(const Value& base, const MethodEntry& entry) {
  auto* method = heap.make<MethodObject>();
  method->self = base;
  method->entry = &entry;
  return {Kind::Method, method};
}

// Python's getattr; false: there is no such attribute.
bool Interpreter::attribute(const Value& base, const std::string& name, Value& out) {
  if (base.is(Kind::Namespace)) {
    const Value* value = base.as<NamespaceObject>().members.find(name);
    if (value) out = name.starts_with('_') ? heap.unsafe_member(base, name) : *value;
    return value != nullptr;
  }
  if (mutates(base, name)) {
    out = heap.unsafe_member(base, name);
    return true;
  }
  if (base.is(Kind::Loop) && loop_member(base.as<LoopObject>(), name, out)) return true;
  if (number_member(base, name, out)) return true;
  if (base.is(Kind::Tuple) && base.as<ListObject>().group && (name == "grouper" || name == "list")) {
    out = base.as<ListObject>().items[name == "list"];
    return true;
  }
  if (base.is(Kind::Range) && (name == "start" || name == "stop" || name == "step")) {
    const auto& range = base.as<RangeObject>();
    out = name == "start" ? range.start : name == "stop" ? range.stop : range.step;
    return true;
  }
  if (base.is(Kind::Cycler) && name == "current") {
    out = base.as<CyclerObject>().items[base.as<CyclerObject>().position];
    return true;
  }
  if (base.is(Kind::Macro)) {
    const Stmt& definition = *base.as<MacroObject>().definition;
    if (name == "name")
      out = heap.text(definition.name);
    else if (name == "catch_kwargs")
      out = definition.uses_kwargs;
    else if (name == "catch_varargs")
      out = definition.uses_varargs;
    else if (name == "caller")
      out = definition.uses_caller;
    else if (name != "arguments")
      return false;
    if (name == "arguments") {
      std::vector<Value> names;
      for (const std::string& parameter : definition.parameters) names.push_back(heap.text(parameter));
      out = heap.tuple(std::move(names));
    }
    return true;
  }
  if (const MethodEntry* method = find_method(base, name)) {
    out = bind_method(base, *method);
    return true;
  }
  return false;
}

// Python's base[key]; false for what a KeyError, IndexError or TypeError would say.
bool Interpreter::subscript(const Value& base, const Value& key, Value& out) {
  if (base.is(Kind::Dict)) {
    if (key.is(Kind::List) || key.is(Kind::Dict) || key.is(Kind::View)) return false;
    const Value* found = base.as<DictObject>().find(heap, key);
    if (found) out = *found;
    return found != nullptr;
  }
  if (!key.is(Kind::Int) && !key.is(Kind::Bool)) return false;
  if (!base.is_sequence() && !base.is(Kind::String) && !base.is(Kind::Range)) return false;
  const int64_t size = length(base);
  int64_t at = to_index(key, "index");
  if (at < 0) at += size;
  if (at < 0 || at >= size) return false;
  if (base.is(Kind::Range)) {
    out = base.as<RangeObject>().start + at * base.as<RangeObject>().step;
  } else if (base.is(Kind::String)) {
    if (!base.text().ascii()) heap.budget.work(at >> 4);
    out = heap.text(slice_text(base.text(), {at, at + 1, 1, 1}), base.markup());
  } else {
    out = base.as<ListObject>().items[static_cast<size_t>(at)];
  }
  return true;
}

// x.name: the attribute, else the item.
Value Interpreter::member(const Value& base, const std::string& name) {
  if (base.is(Kind::Undefined)) fail_undefined(base);
  Value out;
  if (attribute(base, name, out)) return out;
  if (base.is(Kind::Dict)) {
    if (const Value* found = base.as<DictObject>().find(name)) return *found;
  }
  if (name.starts_with("__") && name.ends_with("__")) return heap.unsafe_member(base, name);
  return heap.undefined_member(base, heap.text(name));
}

// x[key]: the item, else the attribute.
Value Interpreter::item(const Value& base, const Value& key) {
  if (base.is(Kind::Undefined)) fail_undefined(base);
  Value out;
  if (subscript(base, key, out)) return out;
  if (key.is(Kind::String)) {
    if (attribute(base, key.bytes(), out)) return out;
    if (key.bytes().starts_with("__") && key.bytes().ends_with("__")) return heap.unsafe_member(base, key.bytes());
  }
  return heap.undefined_member(base, key);
}

Value Interpreter::slice(const Value& base, const Value& start, const Value& stop, const Value& step) {
  if (base.is(Kind::Undefined)) fail_undefined(base);
  if (!base.is_sequence() && !base.is(Kind::String) && !base.is(Kind::Range)) {
    if (base.is(Kind::Dict)) trouble("unhashable type: 'slice'");
    trouble("'", type_name(base), "' object is not subscriptable");
  }
  const SliceBounds bounds = resolve(start, stop, step, length(base));
  heap.budget.work(bounds.count >> 4);
  if (base.is(Kind::String)) return heap.text(slice_text(base.text(), bounds), base.markup());
  if (base.is(Kind::Range)) {
    const auto& range = base.as<RangeObject>();
    auto* part = heap.make<RangeObject>();
    *part = RangeObject();
    part->start = range.start + bounds.start * range.step;
    part->step = range.step * bounds.step;
    part->stop = range.start + bounds.stop * range.step;
    return {Kind::Range, part};
  }
  std::vector<Value> out;
  const auto& items = base.as<ListObject>().items;
  for (int64_t i = 0; i < bounds.count; ++i) out.push_back(items[static_cast<size_t>(bounds.start + i * bounds.step)]);
  return base.is(Kind::List) ? heap.list(std::move(out)) : heap.tuple(std::move(out));
}

Value Interpreter::add(const Value& a, const Value& b) {
  if (a.is(Kind::String) && b.is(Kind::String)) {
    const bool markup = a.markup() || b.markup();
    std::string out = markup && !a.markup() ? escape_html(a.bytes()) : a.bytes();
    out += markup && !b.markup() ? escape_html(b.bytes()) : b.bytes();
    return heap.text(std::move(out), markup);
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    std::vector<Value> out = a.as<ListObject>().items;
    const auto& more = b.as<ListObject>().items;
    out.insert(out.end(), more.begin(), more.end());
    return a.is(Kind::List) ? heap.list(std::move(out)) : heap.tuple(std::move(out));
  }
  if (a.is(Kind::String) || a.is_sequence()) {
    trouble("can only concatenate ", type_name(a), " (not \"", type_name(b), "\") to ", type_name(a));
  }
  trouble("unsupported operand type(s) for +: '", type_name(a), "' and '", type_name(b), "'");
}

Value Interpreter::multiply(const Value& a, const Value& b) {
  const bool first = a.is(Kind::String) || a.is_sequence();
  const Value &sequence = first ? a : b, &count = first ? b : a;
  if (!first && !b.is(Kind::String) && !b.is_sequence()) {
    trouble("unsupported operand type(s) for *: '", type_name(a), "' and '", type_name(b), "'");
  }
  if (!count.is_integral()) trouble("can't multiply sequence by non-int of type '", type_name(count), "'");
  const int64_t times =
      count.is(Kind::BigInt) && big_negative(count) ? 0 : std::max<int64_t>(0, to_index(count, "repetition"));
  const auto size = static_cast<int64_t>(
      sequence.is(Kind::String) ? sequence.bytes().size() : sequence.as<ListObject>().items.size() * sizeof(Value));
  if (size > 0 && times > heap.budget.limits.output_bytes / size) trouble("a repetition larger than the output may be");
  if (sequence.is(Kind::String)) {
    std::string out;
    out.reserve(static_cast<size_t>(size * times));
    for (int64_t i = 0; size > 0 && i < times; ++i) out += sequence.bytes();
    return heap.text(std::move(out), sequence.markup());
  }
  std::vector<Value> out;
  const auto& items = sequence.as<ListObject>().items;
  for (int64_t i = 0; size > 0 && i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  return sequence.is(Kind::List) ? heap.list(std::move(out)) : heap.tuple(std::move(out));
}

Value format_percent(Interpreter& interpreter, const Value& format, const Value& values);  // format.cpp

Value Interpreter::binary(char op, const Value& a, const Value& b) {
  if (op == '%' && a.is(Kind::String)) return format_percent(*this, a, b);
  if (a.is(Kind::Undefined)) fail_undefined(a);
  if (b.is(Kind::Undefined)) fail_undefined(b);
  if (a.is_number() && b.is_number()) return arithmetic(heap, op, a, b);
  if (op == '+') return add(a, b);
  if (op == '*') return multiply(a, b);
  trouble("unsupported operand type(s) for ", operator_sign(op), ": '", type_name(a), "' and '", type_name(b), "'");
}

// Follows a path of items ("a.b.0"); what is undefined on the way becomes `fallback`.
Value Interpreter::attribute_path(Value value, const std::vector<Value>& path, const Value* fallback) {
  for (const Value& part : path) {
    value = item(value, part);
    if (fallback && value.is(Kind::Undefined)) value = *fallback;
  }
  return value;
}

}  // namespace apus::jinja
