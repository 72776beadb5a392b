// SPDX-License-Identifier: Apache-2.0
// Values: making them, asking what they are, and the budget that bounds them.
#include "text/jinja/value.h"

#include "text/jinja/strings.h"

namespace apus::jinja {

namespace {

constexpr int64_t kCheckEvery = 4096;  // steps between two looks at the clock

uintptr_t stack_position() { return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)); }

}  // namespace

Budget::Budget(const RenderLimits& limits)
    : limits(limits),
      next_check_(kCheckEvery),
      deadline_(std::chrono::steady_clock::now() +
                std::chrono::milliseconds(static_cast<int64_t>(limits.seconds * 1000))),
      stack_(stack_position()) {}

void Budget::check() {
  next_check_ = steps_ + kCheckEvery;
  if (steps_ > limits.steps)
    trouble("the template does more than ", limits.steps, " steps: is there a loop without end?");
  if (std::chrono::steady_clock::now() > deadline_) trouble("the template takes longer than ", limits.seconds, " s");
}

void Budget::out_of_memory() const {
  trouble("the template makes values of more than ", limits.memory_bytes >> 20, " MiB");
}

void Budget::check_stack() const {
  const uintptr_t here = stack_position();
  const uintptr_t used = stack_ > here ? stack_ - here : here - stack_;
  if (used > limits.stack_bytes) trouble("maximum recursion depth exceeded");
}

Text::Text(std::string text, Budget* budget) : bytes(std::move(text)), budget_(budget) {
  if (budget_) {
    budget_->work(static_cast<int64_t>(bytes.size() >> 6));
    budget_->take(static_cast<int64_t>(bytes.size()));
  }
}

Text::~Text() {
  if (budget_) budget_->give(static_cast<int64_t>(bytes.size()));
}

int64_t Text::points() const {
  if (points_ < 0) points_ = count_points(bytes);
  return points_;
}

int64_t RangeObject::size() const {
  if (step > 0) return start < stop ? (stop - 1 - start) / step + 1 : 0;
  return start > stop ? (start - 1 - stop) / -step + 1 : 0;
}

Value Heap::sequence(Kind kind, std::vector<Value> items) {
  budget.work(static_cast<int64_t>(items.size()));
  auto* list = make<ListObject>(static_cast<int64_t>(items.size() * sizeof(Value)));
  list->items = std::move(items);
  return {kind, list};
}

Value Heap::iterator(std::vector<Value> items, const char* type) {
  auto* object = make<IteratorObject>(static_cast<int64_t>(items.size() * sizeof(Value)));
  object->items = std::move(items);
  object->type = type;
  return {Kind::Iterator, object};
}

Value Heap::generator(const Value& source, std::function<bool(Value& item)> step) {
  const bool chained = source.is(Kind::Iterator);
  const Value made = iterator(chained ? std::vector<Value>() : iterate(*this, source));
  auto& object = made.as<IteratorObject>();
  if (chained) object.upstream = &source.as<IteratorObject>();
  object.step = std::move(step);
  return made;
}

bool IteratorObject::pull(Heap& heap, Value& out) {
  heap.budget.check_stack();
  for (;;) {
    if (upstream ? !upstream->pull(heap, out) : next >= items.size()) return false;
    if (!upstream) out = items[next++];
    if (!step || step(out)) return true;
  }
}

Value Heap::undefined(std::string hint) {
  auto* object = make<UndefinedObject>();
  object->hint = std::move(hint);
  return {Kind::Undefined, object};
}

Value Heap::undefined_name(std::string_view name) {
  auto* object = make<UndefinedObject>();
  object->name = text(std::string(name));
  return {Kind::Undefined, object};
}

Value Heap::undefined_member(const Value& base, const Value& name) {
  auto* object = make<UndefinedObject>();
  object->base = base;
  object->has_base = true;
  object->name = name;
  return {Kind::Undefined, object};
}

Value Heap::unsafe_member(const Value& base, std::string_view name) {
  auto* object = make<UndefinedObject>();
  object->hint = str("access to attribute '", name, "' of '", type_name(base), "' object is unsafe.");
  object->unsafe = true;
  return {Kind::Undefined, object};
}

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
      return "Undefined";
    case Kind::None:
      return "NoneType";
    case Kind::Bool:
      return "bool";
    case Kind::Int:
    case Kind::BigInt:
      return "int";
    case Kind::Float:
      return "float";
    case Kind::String:
      return value.markup() ? "Markup" : "str";
    case Kind::List:
      return "list";
    case Kind::Tuple:
      return value.as<ListObject>().group ? "_GroupTuple" : "tuple";
    case Kind::Dict:
      return "dict";
    case Kind::View: {
      const auto of = value.as<ViewObject>().of;
      return of == ViewObject::Of::Keys ? "dict_keys" : of == ViewObject::Of::Values ? "dict_values" : "dict_items";
    }
    case Kind::Range:
      return "range";
    case Kind::Iterator:
      return value.as<IteratorObject>().type;
    case Kind::Namespace:
      return "Namespace";
    case Kind::Loop:
      return "LoopContext";
    case Kind::Macro:
      return "Macro";
    case Kind::Function:
      return "function";
    case Kind::Method:
      return "builtin_function_or_method";
    case Kind::Cycler:
      return "Cycler";
    case Kind::Joiner:
      return "Joiner";
  }
  return "object";
}

std::string object_type(const Value& value) {
  if (value.is(Kind::None)) return "None";
  switch (value.kind()) {
    case Kind::Namespace:
    case Kind::Cycler:
    case Kind::Joiner:
      return str("jinja2.utils.", type_name(value), " object");
    case Kind::Loop:
    case Kind::Macro:
      return str("jinja2.runtime.", type_name(value), " object");
    default:
      return str(type_name(value), " object");
  }
}

std::string undefined_message(const Value& value) {
  const auto& undefined = value.as<UndefinedObject>();
  if (!undefined.hint.empty()) return undefined.hint;
  if (!undefined.has_base) return str("'", undefined.name.bytes(), "' is undefined");
  if (undefined.name.is(Kind::String)) {
    return str("'", object_type(undefined.base), "' has no attribute '", undefined.name.bytes(), "'");
  }
  const std::string name = undefined.name.is_integral() ? integer_text(undefined.name) : type_name(undefined.name);
  return str(object_type(undefined.base), " has no element ", name);
}

void fail_undefined(const Value& value) { throw Problem{undefined_message(value)}; }

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
    case Kind::None:
      return false;
    case Kind::Bool:
      return value.boolean();
    case Kind::Int:
      return value.integer() != 0;
    case Kind::Float:
      return value.real() != 0;
    case Kind::String:
      return !value.bytes().empty();
    case Kind::List:
    case Kind::Tuple:
    case Kind::Dict:
    case Kind::View:
    case Kind::Range:
      return length(value) != 0;
    default:
      return true;
  }
}

bool is_callable(const Value& value) {
  switch (value.kind()) {
    case Kind::Macro:
    case Kind::Function:
    case Kind::Method:
    case Kind::Loop:
    case Kind::Joiner:
    case Kind::Undefined:
      return true;
    default:
      return false;
  }
}

bool has_length(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
    case Kind::String:
    case Kind::List:
    case Kind::Tuple:
    case Kind::Dict:
    case Kind::View:
    case Kind::Range:
      return true;
    default:
      return false;
  }
}

int64_t length(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
      return 0;
    case Kind::String:
      return value.text().points();
    case Kind::List:
    case Kind::Tuple:
      return static_cast<int64_t>(value.as<ListObject>().items.size());
    case Kind::Dict:
      return static_cast<int64_t>(value.as<DictObject>().items.size());
    case Kind::View:
      return static_cast<int64_t>(value.as<ViewObject>().dict->items.size());
    case Kind::Range:
      return value.as<RangeObject>().size();
    default:
      trouble("object of type '", type_name(value), "' has no len()");
  }
}

bool is_iterable(const Value& value) { return has_length(value) || value.is(Kind::Iterator) || value.is(Kind::Loop); }

std::vector<Value> iterate(Heap& heap, const Value& value) {
  std::vector<Value> out;
  switch (value.kind()) {
    case Kind::Undefined:
      break;
    case Kind::String:
      heap.budget.work(length(value));
      heap.budget.take(length(value) * 16);
      out.reserve(static_cast<size_t>(length(value)));
      for (std::string& point : split_points(value.bytes())) out.push_back(heap.text(std::move(point)));
      break;
    case Kind::List:
    case Kind::Tuple:
      out = value.as<ListObject>().items;
      break;
    case Kind::Dict:
      for (const auto& [key, member] : value.as<DictObject>().items) out.push_back(key);
      break;
    case Kind::View: {
      const auto& view = value.as<ViewObject>();
      for (const auto& [key, member] : view.dict->items) {
        if (view.of == ViewObject::Of::Items)
          out.push_back(heap.tuple({key, member}));
        else
          out.push_back(view.of == ViewObject::Of::Keys ? key : member);
      }
      break;
    }
    case Kind::Range: {
      const auto& range = value.as<RangeObject>();
      for (int64_t i = 0, n = range.size(); i < n; ++i) out.emplace_back(range.start + i * range.step);
      break;
    }
    case Kind::Iterator: {
      for (Value item; value.as<IteratorObject>().pull(heap, item);) out.push_back(std::move(item));
      break;
    }
    default:
      trouble("'", type_name(value), "' object is not iterable");
  }
  heap.budget.work(static_cast<int64_t>(out.size()));
  return out;
}

int64_t to_index(const Value& value, const char* what) {
  if (value.is(Kind::Int)) return value.integer();
  if (value.is(Kind::Bool)) return value.boolean();
  if (value.is(Kind::Undefined)) fail_undefined(value);
  if (value.is(Kind::BigInt)) trouble(what, ": the number is too large");
  trouble(what, ": '", type_name(value), "' object cannot be interpreted as an integer");
}

}  // namespace apus::jinja
