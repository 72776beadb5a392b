// SPDX-License-Identifier: Apache-2.0
// Runs a program: statements write text, expressions give values.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace apus::jinja {

// Variables of a loop's body, a macro, a block. Shared, because a macro remembers where it was written.
struct Scope {
  std::shared_ptr<Scope> outer;
  std::vector<std::pair<int, Value>> variables;  // symbol, value
  void set(int symbol, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

struct MacroObject : Object {
  const Stmt* definition = nullptr;
  ScopePtr scope;
  bool autoescape = false;
};

// The `loop` variable, and the loop's own cursor: items are filtered as they are reached.
struct LoopObject : Object {
  const Stmt* statement = nullptr;
  ScopePtr scope;
  std::vector<Value> items;
  IteratorObject* source = nullptr;  // instead of items, when a generator is used up step by step
  size_t next = 0;
  int64_t index0 = -1, length = -1, depth = 1;
  bool peeked = false, has_after = false;
  bool settled = false;  // the rest of the items has passed the condition
  Value before, current, after;
  std::vector<Value> last_changed;
  bool changed_once = false;
};

struct FilterEntry {
  const char* name;
  Value (*apply)(Interpreter&, const Value&, const Args&);
  bool takes_arguments = true;
};

struct TestEntry {
  const char* name;
  bool (*holds)(Interpreter&, const Value&, const Args&);
  bool takes_argument = false;
};

const FilterEntry* find_filter(std::string_view name);
const TestEntry* find_test(std::string_view name);
const FunctionEntry* find_global(std::string_view name);
const MethodEntry* find_method(const Value& self, std::string_view name);
bool mutates(const Value& self, std::string_view name);  // a method the sandbox forbids

// Arguments by name or position, as a Python function takes them.
class Bound {
 public:
  Bound(const Args& args, const char* function, std::initializer_list<const char*> names, size_t required = 0);
  bool has(size_t i) const { return present_[i]; }
  bool given(size_t i) const { return present_[i] && !values_[i].is(Kind::None); }
  const Value& operator[](size_t i) const { return values_[i]; }

 private:
  std::vector<Value> values_;
  std::vector<char> present_;
};

class Interpreter {
 public:
  Interpreter(const Program& program, const RenderLimits& limits, const LocalTime& now)
      : heap(limits), now(now), program_(program) {}

  Rendered run(const Json& context);
  int line() const { return line_; }

  Value call(const Value& callee, const Args& args);
  Value member(const Value& base, const std::string& name);
  Value item(const Value& base, const Value& key);
  Value slice(const Value& base, const Value& start, const Value& stop, const Value& step);
  Value binary(char op, const Value& a, const Value& b);
  Value apply(const FilterEntry* filter, const std::string& name, const Value& value, const Args& args);
  bool holds(const TestEntry* test, const std::string& name, const Value& value, const Args& args);
  Value attribute_path(Value value, const std::vector<Value>& path, const Value* fallback = nullptr);
  Value text(std::string bytes) { return heap.text(std::move(bytes)); }
  bool autoescape() const { return autoescape_; }
  uint64_t random();

  Heap heap;
  const LocalTime now;

 private:
  enum class Flow { Normal, Break, Continue };
  class Capture;
  friend class Capture;

  // interpreter.cpp: statements
  Flow run_body(const Body& body);
  Flow run_stmt(const Stmt& stmt);
  Flow run_if(const Stmt& stmt);
  void run_output(const Stmt& stmt);
  Flow run_loop(const Stmt& stmt, const ScopePtr& outer, const Value& iterable, int64_t depth);
  Value recurse(LoopObject& loop, const Args& args);
  bool advance(LoopObject& loop);
  bool pull(LoopObject& loop, Value& out);
  int64_t loop_length(LoopObject& loop);
  bool loop_member(LoopObject& loop, const std::string& name, Value& out);
  void run_call_block(const Stmt& stmt);
  void run_generation(const Stmt& stmt);
  Flow run_with(const Stmt& stmt);
  Flow run_filtered(const Stmt& stmt);
  Value capture(const Body& body, ScopePtr scope, Flow* flow = nullptr);  // `flow`: how the body ended
  Value make_macro(const Stmt& stmt);
  Value call_macro(const MacroObject& macro, const Args& args);
  void check_target(const Expr& target);
  void assign(const Expr& target, const Value& value);
  void write(const Value& value);

  // evaluate.cpp: expressions
  Value eval(const Expr& expr);
  Value eval_call(const Expr& expr);
  Value eval_compare(const Expr& expr);
  Value eval_dict(const Expr& expr);
  Value eval_concat(const Expr& expr);
  Args eval_args(const Expr& expr);
  Value lookup(const Expr& expr);
  std::vector<Value> eval_all(const Expr& expr);

  // access.cpp
  bool attribute(const Value& base, const std::string& name, Value& out);
  bool subscript(const Value& base, const Value& key, Value& out);
  Value bind_method(const Value& base, const MethodEntry& entry);
  Value add(const Value& a, const Value& b);
  Value multiply(const Value& a, const Value& b);

  const Program& program_;
  DictObject* context_ = nullptr;
  std::vector<std::optional<Value>> root_;  // by symbol
  ScopePtr scope_;                          // null: the root
  std::string output_;
  std::string* out_ = &output_;
  std::vector<std::pair<size_t, size_t>> generation_;
  int line_ = 0, calls_ = 0;
  bool autoescape_ = false;
  uint64_t random_state_ = 0x9E3779B97F4A7C15;
};

}  // namespace apus::jinja
