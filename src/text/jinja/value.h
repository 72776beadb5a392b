// SPDX-License-Identifier: Apache-2.0
// The values of a template: Python's, as far as templates can tell. Strings are shared; everything with an identity or
// with members is an Object owned by the Heap of one rendering, so cycles and deep nests are freed at no cost.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja.h"

namespace apus::jinja {

// What goes wrong while parsing or rendering;
// the engine adds the template's name and the line and throws TemplateError.
struct Problem {
  std::string message;
  bool raised = false;  // by raise_exception
  int line = 0;         // 0: where the engine stands
};

template <class... P>
[[noreturn]] void trouble(const P&... parts) {
  throw Problem{str(parts...)};
}

enum class Kind : uint8_t {
  Undefined,
  None,
  Bool,
  Int,
  BigInt,
  Float,
  String,
  List,
  Tuple,
  Dict,
  View,
  Range,
  Iterator,
  Namespace,
  Loop,
  Macro,
  Function,
  Method,
  Cycler,
  Joiner
};

// What one rendering may still use up. Strings return their bytes when they go; objects live until the end.
class Budget {
 public:
  explicit Budget(const RenderLimits& limits);
  void work(int64_t steps = 1) {
    steps_ += steps;
    if (steps_ >= next_check_) check();
  }
  void take(int64_t bytes) {
    memory_ += bytes;
    if (memory_ > limits.memory_bytes) out_of_memory();
  }
  void give(int64_t bytes) { memory_ -= bytes; }
  void check_stack() const;
  const RenderLimits limits;

 private:
  void check();
  [[noreturn]] void out_of_memory() const;
  int64_t steps_ = 0, next_check_ = 0, memory_ = 0;
  std::chrono::steady_clock::time_point deadline_;
  uintptr_t stack_;
};

// A string: UTF-8, counted in code points as Python does.
struct Text {
  Text(std::string bytes, Budget* budget);
  ~Text();
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;
  int64_t points() const;  // code points, counted once
  bool ascii() const { return points() == static_cast<int64_t>(bytes.size()); }
  const std::string bytes;

 private:
  Budget* const budget_;
  mutable int64_t points_ = -1;
};

struct Object {
  virtual ~Object() = default;
};

class Value {
 public:
  Value() : kind_(Kind::None) {}
  Value(bool b) : kind_(Kind::Bool) { bool_ = b; }              // NOLINT: implicit
  Value(int64_t i) : kind_(Kind::Int) { int_ = i; }             // NOLINT: implicit
  Value(double d) : kind_(Kind::Float) { double_ = d; }         // NOLINT: implicit
  Value(std::shared_ptr<const Text> text, bool markup = false)  // NOLINT: implicit
      : kind_(Kind::String), markup_(markup), text_(std::move(text)) {}
  Value(Kind kind, Object* object) : kind_(kind) { object_ = object; }
  Value(const void*) = delete;  // a pointer is not a truth value

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool markup() const { return markup_; }  // from `safe` or `escape`
  bool boolean() const { return bool_; }
  int64_t integer() const { return int_; }
  double real() const { return double_; }
  const Text& text() const { return *text_; }
  const std::string& bytes() const { return text_->bytes; }
  const std::shared_ptr<const Text>& shared_text() const { return text_; }
  Object* object() const { return object_; }
  template <class T>
  T& as() const {
    return *static_cast<T*>(object_);
  }

  bool is_integral() const { return kind_ == Kind::Int || kind_ == Kind::BigInt || kind_ == Kind::Bool; }
  bool is_number() const { return is_integral() || kind_ == Kind::Float; }
  bool is_sequence() const { return kind_ == Kind::List || kind_ == Kind::Tuple; }

 private:
  Kind kind_;
  bool markup_ = false;
  union {
    bool bool_;
    int64_t int_ = 0;
    double double_;
    Object* object_;
  };
  std::shared_ptr<const Text> text_;
};

struct UndefinedObject : Object {
  std::string hint;  // the whole message, or empty
  Value base, name;  // of what, which attribute or item
  bool has_base = false, unsafe = false;
};

struct ListObject : Object {  // of Kind::List and Kind::Tuple
  std::vector<Value> items;
  bool group = false;  // groupby's pair, whose members have names
};

class Heap;

struct DictObject : Object {
  std::vector<std::pair<Value, Value>> items;
  const Value* find(Heap& heap, const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Heap& heap, const Value& key, Value value);

 private:
  int64_t position(Heap& heap, const Value& key) const;
  mutable std::unordered_multimap<size_t, uint32_t> index_;  // hash to position, once there are more than a few
};

struct ViewObject : Object {
  enum class Of { Keys, Values, Items } of = Of::Keys;
  DictObject* dict = nullptr;
};

struct RangeObject : Object {
  int64_t start = 0, stop = 0, step = 1;
  int64_t size() const;
};

// What a Python generator would give: items made as they are asked for, once.
struct IteratorObject : Object {
  std::vector<Value> items;  // or those of `upstream`
  IteratorObject* upstream = nullptr;
  size_t next = 0;
  std::function<bool(Value& item)> step;  // changes the item; false: leaves it out
  const char* type = "generator";
  bool pull(Heap& heap, Value& out);
};

struct NamespaceObject : Object {
  DictObject members;
};

struct CyclerObject : Object {
  std::vector<Value> items;
  size_t position = 0;
};

struct JoinerObject : Object {
  Value separator;
  bool used = false;
};

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

class Interpreter;

struct FunctionEntry {
  const char* name;
  Value (*call)(Interpreter&, const Args&);
};

struct FunctionObject : Object {
  const FunctionEntry* entry = nullptr;
};

struct MethodEntry {
  const char* name;
  Value (*call)(Interpreter&, const Value& self, const Args&);
};

struct MethodObject : Object {
  Value self;
  const MethodEntry* entry = nullptr;
};

// Makes values and owns the objects among them.
class Heap {
 public:
  explicit Heap(const RenderLimits& limits) : budget(limits) {}

  Value text(std::string bytes, bool markup = false) {
    return Value(std::make_shared<const Text>(std::move(bytes), &budget), markup);
  }
  template <class T>
  T* make(int64_t extra_bytes = 0) {
    budget.take(static_cast<int64_t>(sizeof(T)) + 32 + extra_bytes);
    auto owned = std::make_unique<T>();
    T* object = owned.get();
    objects_.push_back(std::move(owned));
    return object;
  }
  Value list(std::vector<Value> items) { return sequence(Kind::List, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(Kind::Tuple, std::move(items)); }
  Value iterator(std::vector<Value> items, const char* type = "generator");
  Value generator(const Value& source, std::function<bool(Value& item)> step);
  Value undefined(std::string hint);
  Value undefined_name(std::string_view name);
  Value undefined_member(const Value& base, const Value& name);
  Value unsafe_member(const Value& base, std::string_view name);

  Budget budget;

 private:
  Value sequence(Kind kind, std::vector<Value> items);
  std::vector<std::unique_ptr<Object>> objects_;
};

const char* type_name(const Value& value);    // "str", "NoneType", ... as Python says
std::string object_type(const Value& value);  // "str object", "None": as Jinja says
std::string undefined_message(const Value& value);
[[noreturn]] void fail_undefined(const Value& value);
bool truthy(const Value& value);
bool is_callable(const Value& value);
bool identical(const Value& a, const Value& b);  // Python's `is`
bool equals(Heap& heap, const Value& a, const Value& b);
// <0, 0, >0; sign names the operator; NaN: 2.
int compare(Heap& heap, const Value& a, const Value& b, const char* sign);
size_t hash_of(Heap& heap, const Value& value);  // fails for lists and dicts
bool contains(Heap& heap, const Value& container, const Value& item);
int64_t length(const Value& value);  // fails without one
bool has_length(const Value& value);
bool is_iterable(const Value& value);
std::vector<Value> iterate(Heap& heap, const Value& value);  // all items; uses an iterator up
int64_t to_index(const Value& value, const char* what);      // an integer that fits, for sizes and positions

// number.cpp
std::string float_repr(double value);                                                       // 1.0, 1e+16, nan
Value parse_integer(Heap& heap, std::string_view digits, int base, bool negative = false);  // fails when not one
double parse_real(std::string_view text, bool& ok);                                         // as Python's float()
Value arithmetic(Heap& heap, char op, const Value& a, const Value& b);  // + - * / % ** (p) // (f), numbers only
Value negate(Heap& heap, const Value& value);
int compare_numbers(const Value& a, const Value& b);  // 2: unordered
bool big_is_odd(const Value& value);
double to_real(const Value& value);
size_t hash_number(const Value& value);
std::string integer_text(const Value& value, int base = 10);
Value real_to_integer(Heap& heap, double value);  // towards zero
bool big_negative(const Value& value);

// repr.cpp
std::string to_text(Heap& heap, const Value& value);  // str()
std::string repr(Heap& heap, const Value& value);     // repr()
struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false, indented = false;
  std::string indent, item_separator = ", ", key_separator = ": ";
};
std::string to_json(Heap& heap, const Value& value, const JsonStyle& style);

// from_json.cpp
Value from_json(Heap& heap, const Json& json);

}  // namespace apus::jinja
