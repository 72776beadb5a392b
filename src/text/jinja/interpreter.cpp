// SPDX-License-Identifier: Apache-2.0
// The interpreter's statements.
#include "text/jinja/interpreter.h"

#include <algorithm>

#include "text/jinja/strings.h"

namespace apus::jinja {

void Scope::set(int symbol, Value value) {
  for (auto& [known, old] : variables) {
    if (known == symbol) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(symbol, std::move(value));
}

// While it lives, text goes into a buffer and variables into `scope`.
class Interpreter::Capture {
 public:
  Capture(Interpreter& interpreter, ScopePtr scope)
      : interpreter_(interpreter), out_(interpreter.out_), scope_(std::move(interpreter.scope_)) {
    interpreter_.out_ = &buffer;
    interpreter_.scope_ = std::move(scope);
  }
  ~Capture() {
    interpreter_.out_ = out_;
    interpreter_.scope_ = std::move(scope_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  std::string buffer;

 private:
  Interpreter& interpreter_;
  std::string* const out_;
  ScopePtr scope_;
};

Rendered Interpreter::run(const Json& context) {
  root_.resize(program_.symbols.size());
  const Value variables = from_json(heap, context);
  if (!variables.is(Kind::Dict)) trouble("the context of a template must be an object");
  context_ = &variables.as<DictObject>();
  run_body(program_.body);
  return {std::move(output_), std::move(generation_)};
}

Interpreter::Flow Interpreter::run_body(const Body& body) {
  for (const auto& stmt : body) {
    const Flow flow = run_stmt(*stmt);
    if (flow != Flow::Normal) return flow;
  }
  return Flow::Normal;
}

Interpreter::Flow Interpreter::run_stmt(const Stmt& stmt) {
  heap.budget.work();
  heap.budget.check_stack();
  line_ = stmt.line;
  switch (stmt.kind) {
    case Stmt::Kind::Output:
      run_output(stmt);
      break;
    case Stmt::Kind::If:
      return run_if(stmt);
    case Stmt::Kind::For:
      return run_loop(stmt, scope_, eval(*stmt.exprs[1]), 1);
    case Stmt::Kind::Set:
      check_target(*stmt.exprs[0]);
      assign(*stmt.exprs[0], eval(*stmt.exprs[1]));
      break;
    case Stmt::Kind::SetBlock:
    case Stmt::Kind::FilterBlock:
      return run_filtered(stmt);
    case Stmt::Kind::With:
      return run_with(stmt);
    case Stmt::Kind::Macro: {
      const Value macro = make_macro(stmt);
      if (scope_)
        scope_->set(stmt.symbol, macro);
      else
        root_[static_cast<size_t>(stmt.symbol)] = macro;
      break;
    }
    case Stmt::Kind::CallBlock:
      run_call_block(stmt);
      break;
    case Stmt::Kind::Generation:
      run_generation(stmt);
      break;
    case Stmt::Kind::Block:
      write(capture(stmt.bodies[0], std::make_shared<Scope>(Scope{stmt.flag ? scope_ : nullptr, {}})));
      break;
    case Stmt::Kind::Autoescape: {
      const bool before = autoescape_;
      autoescape_ = truthy(eval(*stmt.exprs[0]));
      write(capture(stmt.bodies[0], std::make_shared<Scope>(Scope{scope_, {}})));
      autoescape_ = before;
      break;
    }
    case Stmt::Kind::Break:
      return Flow::Break;
    case Stmt::Kind::Continue:
      return Flow::Continue;
    case Stmt::Kind::Impossible:
      trouble("'", stmt.name, "' needs other templates; a chat template stands alone");
  }
  return Flow::Normal;
}

Interpreter::Flow Interpreter::run_if(const Stmt& stmt) {
  for (size_t i = 0; i < stmt.exprs.size(); ++i) {
    if (truthy(eval(*stmt.exprs[i]))) return run_body(stmt.bodies[i]);
  }
  return stmt.bodies.size() > stmt.exprs.size() ? run_body(stmt.bodies.back()) : Flow::Normal;
}

void Interpreter::run_output(const Stmt& stmt) {
  for (const ExprPtr& expr : stmt.exprs) write(expr->kind == Expr::Kind::Constant ? expr->value : eval(*expr));
}

void Interpreter::write(const Value& value) {
  if (value.is(Kind::String) && (!autoescape_ || value.markup()))
    *out_ += value.bytes();
  else
    *out_ += autoescape_ ? escape_html(to_text(heap, value)) : to_text(heap, value);
  if (out_->size() > static_cast<size_t>(heap.budget.limits.output_bytes)) {
    trouble("the text is larger than ", heap.budget.limits.output_bytes >> 20, " MiB");
  }
}

// The text of a body, as a value.
Value Interpreter::capture(const Body& body, ScopePtr scope, Flow* flow) {
  Capture capture(*this, std::move(scope));
  const Flow ended = run_body(body);
  if (flow) *flow = ended;
  return heap.text(std::move(capture.buffer), autoescape_);
}

// Attributes can be set of namespaces only; that is found out before the value is.
void Interpreter::check_target(const Expr& target) {
  if (target.kind == Expr::Kind::Attribute && !lookup(target).is(Kind::Namespace))
    trouble("cannot assign attribute on non-namespace object");
  for (const ExprPtr& part : target.items) check_target(*part);
}

void Interpreter::assign(const Expr& target, const Value& value) {
  switch (target.kind) {
    case Expr::Kind::Name:
      if (scope_)
        scope_->set(target.symbol, value);
      else
        root_[static_cast<size_t>(target.symbol)] = value;
      break;
    case Expr::Kind::Attribute: {
      check_target(target);
      const Value space = lookup(target);
      space.as<NamespaceObject>().members.set(heap, target.value, value);
      break;
    }
    default: {
      const size_t wanted = target.items.size();
      const std::vector<Value> parts = iterate(heap, value);
      if (parts.size() > wanted) trouble("too many values to unpack (expected ", wanted, ")");
      if (parts.size() < wanted) trouble("not enough values to unpack (expected ", wanted, ", got ", parts.size(), ")");
      for (size_t i = 0; i < wanted; ++i) assign(*target.items[i], parts[i]);
    }
  }
}

// {% set x %}...{% endset %} and {% filter f %}...{% endfilter %}. A break or continue within drops the text.
Interpreter::Flow Interpreter::run_filtered(const Stmt& stmt) {
  const bool sets = stmt.kind == Stmt::Kind::SetBlock;
  Flow flow = Flow::Normal;
  Value text = capture(stmt.bodies[0], std::make_shared<Scope>(Scope{scope_, {}}), &flow);
  if (flow != Flow::Normal) return flow;
  const Expr* filter = stmt.exprs[sets ? 1 : 0].get();
  if (filter) {
    const ScopePtr outer = scope_;
    scope_ = std::make_shared<Scope>(Scope{outer, {{stmt.symbol, text}}});
    text = eval(*filter);
    scope_ = outer;
  }
  if (!sets && !text.is(Kind::String)) trouble("a filter block has to give a string, not ", type_name(text));
  if (sets)
    assign(*stmt.exprs[0], text);
  else
    write(text);
  return Flow::Normal;
}

Interpreter::Flow Interpreter::run_with(const Stmt& stmt) {
  const ScopePtr outer = scope_;
  std::vector<Value> values;
  for (const ExprPtr& expr : stmt.exprs) values.push_back(eval(*expr));
  scope_ = std::make_shared<Scope>(Scope{outer, {}});
  for (size_t i = 0; i < values.size(); ++i) assign(*stmt.targets[i], values[i]);
  const Flow flow = run_body(stmt.bodies[0]);
  scope_ = outer;
  return flow;
}

void Interpreter::run_generation(const Stmt& stmt) {
  // A block within a macro counts from where the macro's text will be written, as transformers counts.
  const size_t begin = output_.size();
  const Value text = capture(stmt.bodies[0], std::make_shared<Scope>(Scope{scope_, {}}));
  generation_.emplace_back(begin, begin + text.bytes().size());
  write(text);
}

void Interpreter::run_call_block(const Stmt& stmt) {
  const Expr& call_expr = *stmt.exprs[0];
  const Value callee = eval(*call_expr.items[0]);
  Args args = eval_args(call_expr);
  args.keyword.emplace_back("caller", make_macro(stmt));
  write(call(callee, args));
}

Value Interpreter::make_macro(const Stmt& stmt) {
  auto* macro = heap.make<MacroObject>();
  macro->definition = &stmt;
  macro->scope = scope_;
  macro->autoescape = autoescape_;
  return {Kind::Macro, macro};
}

Value Interpreter::call_macro(const MacroObject& macro, const Args& args) {
  const Stmt& definition = *macro.definition;
  if (++calls_ > heap.budget.limits.calls) trouble("maximum recursion depth exceeded in macro '", definition.name, "'");
  const size_t count = definition.parameters.size();
  auto scope = std::make_shared<Scope>(Scope{macro.scope, {}});
  std::vector<std::pair<std::string, Value>> rest = args.keyword;
  const auto take = [&](const std::string& name) -> std::optional<Value> {
    const auto it = std::find_if(rest.begin(), rest.end(), [&](const auto& pair) { return pair.first == name; });
    if (it == rest.end()) return {};
    Value value = std::move(it->second);
    rest.erase(it);
    return value;
  };
  std::vector<std::optional<Value>> given(count);
  for (size_t i = 0; i < count; ++i) {
    if (i < args.positional.size())
      given[i] = args.positional[i];
    else
      given[i] = take(definition.parameters[i]);
  }
  const auto special = [&](const char* name, Value value) {
    if (const auto it = program_.symbol_of.find(name); it != program_.symbol_of.end())
      scope->set(it->second, std::move(value));
  };
  const bool explicit_caller =
      std::find(definition.parameters.begin(), definition.parameters.end(), "caller") != definition.parameters.end();
  if (definition.uses_caller && !explicit_caller) {
    auto caller = take("caller");
    special("caller", caller ? *caller : heap.undefined("No caller defined"));
  }
  if (definition.uses_kwargs) {
    auto* dict = heap.make<DictObject>();
    for (auto& [name, value] : rest) dict->set(heap, heap.text(name), value);
    special("kwargs", {Kind::Dict, dict});
  } else if (!rest.empty()) {
    trouble("macro '", definition.name, "' takes no keyword argument '", rest[0].first, "'");
  }
  if (definition.uses_varargs) {
    const auto from = args.positional.begin() + static_cast<std::ptrdiff_t>(std::min(count, args.positional.size()));
    special("varargs", heap.tuple({from, args.positional.end()}));
  } else if (args.positional.size() > count) {
    trouble("macro '", definition.name, "' takes not more than ", count, " argument(s)");
  }
  const int line = line_;
  Capture capture(*this, scope);
  const size_t first_default = count - definition.defaults.size();
  // A default sees the parameters, those that are not yet there as undefined, and not what bears their names outside.
  for (size_t i = 0; i < count; ++i)
    scope->set(definition.parameter_symbols[i], given[i] ? *given[i] : heap.undefined_name(definition.parameters[i]));
  for (size_t i = 0; i < count; ++i) {
    if (given[i]) continue;
    const std::string& name = definition.parameters[i];
    scope->set(definition.parameter_symbols[i], i >= first_default
                                                    ? eval(*definition.defaults[i - first_default])
                                                    : heap.undefined(str("parameter '", name, "' was not provided")));
  }
  run_body(definition.bodies[0]);
  --calls_;
  line_ = line;
  return heap.text(std::move(capture.buffer), macro.autoescape);
}

}  // namespace apus::jinja
