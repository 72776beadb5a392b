// SPDX-License-Identifier: Apache-2.0
// The interpreter's expressions.
#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/strings.h"

namespace apus::jinja {

Value Interpreter::lookup(const Expr& expr) {
  for (const Scope* scope = scope_.get(); scope; scope = scope->outer.get()) {
    for (const auto& [symbol, value] : scope->variables) {
      if (symbol == expr.symbol) return value;
    }
  }
  std::optional<Value>& slot = root_[static_cast<size_t>(expr.symbol)];
  if (slot) return *slot;
  if (const Value* value = context_->find(expr.name)) return *value;
  if (const FunctionEntry* entry = find_global(expr.name)) {
    auto* function = heap.make<FunctionObject>();
    function->entry = entry;
    return {Kind::Function, function};
  }
  return heap.undefined_name(expr.name);
}

Value Interpreter::eval(const Expr& expr) {
  heap.budget.work();
  heap.budget.check_stack();
  line_ = expr.line;
  const auto part = [&](size_t i) { return eval(*expr.items[i]); };
  const auto optional_part = [&](size_t i) { return expr.items[i] ? eval(*expr.items[i]) : Value(); };
  switch (expr.kind) {
    case Expr::Kind::Constant:
      return expr.value;
    case Expr::Kind::Name:
      return lookup(expr);
    case Expr::Kind::List:
      return heap.list(eval_all(expr));
    case Expr::Kind::Tuple:
      return heap.tuple(eval_all(expr));
    case Expr::Kind::Dict:
      return eval_dict(expr);
    case Expr::Kind::Member:
      return member(part(0), expr.name);
    case Expr::Kind::Item: {
      const Value base = part(0);
      return item(base, part(1));
    }
    case Expr::Kind::Slice: {
      const Value base = part(0), start = optional_part(1), stop = optional_part(2);
      return slice(base, start, stop, optional_part(3));
    }
    case Expr::Kind::Call:
      return eval_call(expr);
    case Expr::Kind::Filter: {
      const Value value = part(0);
      return apply(expr.filter, expr.name, value, eval_args(expr));
    }
    case Expr::Kind::Test: {
      const Value value = part(0);
      return holds(expr.test, expr.name, value, eval_args(expr));
    }
    case Expr::Kind::Not:
      return !truthy(part(0));
    case Expr::Kind::And: {
      Value left = part(0);
      return truthy(left) ? part(1) : left;
    }
    case Expr::Kind::Or: {
      Value left = part(0);
      return truthy(left) ? left : part(1);
    }
    case Expr::Kind::Conditional:
      if (truthy(part(0))) return part(1);
      if (expr.items[2]) return part(2);
      return heap.undefined(
          str("the inline if-expression on line ", expr.line, " evaluated to false and no else section was defined."));
    case Expr::Kind::Compare:
      return eval_compare(expr);
    case Expr::Kind::Binary: {
      const Value left = part(0);
      return binary(expr.op, left, part(1));
    }
    case Expr::Kind::Negative:
    case Expr::Kind::Positive: {
      const Value value = part(0);
      if (value.is(Kind::Undefined)) fail_undefined(value);
      const char sign = expr.kind == Expr::Kind::Negative ? '-' : '+';
      if (!value.is_number()) trouble("bad operand type for unary ", sign, ": '", type_name(value), "'");
      return sign == '-' ? negate(heap, value) : value.is(Kind::Bool) ? Value(int64_t{value.boolean()}) : value;
    }
    case Expr::Kind::Concat:
      return eval_concat(expr);
    case Expr::Kind::Attribute:
      break;
  }
  return {};
}

std::vector<Value> Interpreter::eval_all(const Expr& expr) {
  std::vector<Value> out;
  out.reserve(expr.items.size());
  for (const ExprPtr& part : expr.items) out.push_back(eval(*part));
  return out;
}

Value Interpreter::eval_dict(const Expr& expr) {
  auto* dict = heap.make<DictObject>();
  for (size_t i = 0; i < expr.items.size(); i += 2) {
    const Value key = eval(*expr.items[i]);
    dict->set(heap, key, eval(*expr.items[i + 1]));
  }
  return {Kind::Dict, dict};
}

Value Interpreter::eval_concat(const Expr& expr) {
  std::string out;
  for (const ExprPtr& part : expr.items) {
    const Value value = eval(*part);
    out += autoescape_ && !value.markup() ? escape_html(to_text(heap, value)) : to_text(heap, value);
  }
  return heap.text(std::move(out), autoescape_);
}

Value Interpreter::eval_compare(const Expr& expr) {
  Value left = eval(*expr.items[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    const Value right = eval(*expr.items[i + 1]);
    const std::string& op = expr.ops[i];
    bool holds = false;
    if (op == "==" || op == "!=") {
      holds = equals(heap, left, right) == (op == "==");
    } else if (op == "in" || op == "not in") {
      holds = contains(heap, right, left) == (op == "in");
    } else {
      const int order = compare(heap, left, right, op.c_str());
      holds = order != 2 && (op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0);
    }
    if (!holds) return false;
    left = right;
  }
  return true;
}

Args Interpreter::eval_args(const Expr& expr) {
  Args args;
  for (size_t i = 1; i < expr.items.size(); ++i) args.positional.push_back(eval(*expr.items[i]));
  for (const auto& keyword : expr.keywords) {
    const std::string& name = keyword.first;
    if (std::any_of(args.keyword.begin(), args.keyword.end(), [&](const auto& k) { return k.first == name; })) {
      trouble("keyword argument repeated: ", name);
    }
    args.keyword.emplace_back(name, eval(*keyword.second));
  }
  if (expr.star) {
    for (Value& value : iterate(heap, eval(*expr.star))) args.positional.push_back(std::move(value));
  }
  if (expr.star_star) {
    const Value more = eval(*expr.star_star);
    if (!more.is(Kind::Dict)) trouble("argument after ** must be a mapping, not ", type_name(more));
    for (const auto& [key, value] : more.as<DictObject>().items) {
      if (!key.is(Kind::String)) trouble("keywords must be strings");
      const std::string& name = key.bytes();
      if (std::any_of(args.keyword.begin(), args.keyword.end(), [&](const auto& k) { return k.first == name; })) {
        trouble("got multiple values for keyword argument '", name, "'");
      }
      args.keyword.emplace_back(name, value);
    }
  }
  return args;
}

Value Interpreter::eval_call(const Expr& expr) {
  const Expr& callee = *expr.items[0];
  if (callee.kind == Expr::Kind::Member) {  // a method: called without making a bound method first
    const Value self = eval(*callee.items[0]);
    const MethodEntry* method = self.is(Kind::Undefined) ? nullptr : find_method(self, callee.name);
    if (method && !mutates(self, callee.name)) {
      const Args args = eval_args(expr);
      heap.budget.work(self.is(Kind::String) ? static_cast<int64_t>(self.bytes().size() >> 6) : 1);
      return method->call(*this, self, args);
    }
    const Value function = member(self, callee.name);
    return call(function, eval_args(expr));
  }
  const Value function = eval(callee);
  return call(function, eval_args(expr));
}

Value Interpreter::call(const Value& callee, const Args& args) {
  heap.budget.check_stack();
  switch (callee.kind()) {
    case Kind::Undefined:
      fail_undefined(callee);
    case Kind::Macro:
      return call_macro(callee.as<MacroObject>(), args);
    case Kind::Function:
      return callee.as<FunctionObject>().entry->call(*this, args);
    case Kind::Method:
      return callee.as<MethodObject>().entry->call(*this, callee.as<MethodObject>().self, args);
    case Kind::Loop:
      return recurse(callee.as<LoopObject>(), args);
    case Kind::Joiner: {
      auto& joiner = callee.as<JoinerObject>();
      if (joiner.used) return joiner.separator;
      joiner.used = true;
      return heap.text("");
    }
    default:
      trouble("'", type_name(callee), "' object is not callable");
  }
}

Value Interpreter::apply(const FilterEntry* filter, const std::string& name, const Value& value, const Args& args) {
  if (!filter) trouble("No filter named '", name, "'.");
  if (!filter->takes_arguments && !(args.positional.empty() && args.keyword.empty()))
    trouble(name, "() takes no arguments");
  return filter->apply(*this, value, args);
}

bool Interpreter::holds(const TestEntry* test, const std::string& name, const Value& value, const Args& args) {
  if (!test) trouble("No test named '", name, "'.");
  const size_t given = args.positional.size();
  if (given != size_t{test->takes_argument} || !args.keyword.empty()) {
    trouble("the test '", name, "' takes ", test->takes_argument ? "one argument" : "no arguments", ", ", given,
            " given");
  }
  return test->holds(*this, value, args);
}

uint64_t Interpreter::random() {  // xorshift: the same template gives the same text
  random_state_ ^= random_state_ << 13;
  random_state_ ^= random_state_ >> 7;
  return random_state_ ^= random_state_ << 17;
}

}  // namespace apus::jinja
