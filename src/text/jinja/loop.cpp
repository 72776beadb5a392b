// SPDX-License-Identifier: Apache-2.0
// The for statement and its `loop` variable.

#include "text/jinja/interpreter.h"

namespace apus::jinja {

Interpreter::Flow Interpreter::run_loop(const Stmt& stmt, const ScopePtr& outer, const Value& iterable, int64_t depth) {
  auto& loop = *heap.make<LoopObject>();
  loop.statement = &stmt;
  loop.scope = outer;
  loop.depth = depth;
  if (iterable.is(Kind::Iterator))
    loop.source = &iterable.as<IteratorObject>();
  else
    loop.items = iterate(heap, iterable);
  if (!stmt.exprs[2] && !loop.source) loop.length = static_cast<int64_t>(loop.items.size());

  const ScopePtr before = scope_;
  ScopePtr inner = std::make_shared<Scope>(Scope{outer, {}});
  // A round to its end: Jinja runs the else part also when every round was left by break or continue.
  bool finished = false;
  Flow flow = Flow::Normal;
  while (flow != Flow::Break && advance(loop)) {
    // A macro of the last round keeps it.
    if (inner.use_count() > 1)
      inner = std::make_shared<Scope>(Scope{outer, {}});
    else
      inner->variables.clear();
    inner->set(stmt.symbol, Value(Kind::Loop, &loop));
    scope_ = inner;
    assign(*stmt.exprs[0], loop.current);
    flow = run_body(stmt.bodies[0]);
    scope_ = before;
    finished = finished || flow == Flow::Normal;
  }
  loop.items = {};  // a macro may still hold the loop; nobody needs its items
  if (finished || stmt.bodies[1].empty()) return Flow::Normal;
  scope_ = std::make_shared<Scope>(Scope{outer, {}});
  flow = run_body(stmt.bodies[1]);
  scope_ = before;
  return flow;
}

// The next item that passes the loop's condition.
bool Interpreter::pull(LoopObject& loop, Value& out) {
  const Expr* condition = loop.settled ? nullptr : loop.statement->exprs[2].get();
  for (;;) {
    heap.budget.work();
    Value item;
    if (loop.source ? !loop.source->pull(heap, item) : loop.next >= loop.items.size()) return false;
    if (!loop.source) item = loop.items[loop.next++];
    if (condition) {
      const ScopePtr scope = scope_;
      scope_ = std::make_shared<Scope>(Scope{loop.scope, {}});
      assign(*loop.statement->exprs[0], item);
      const bool passes = truthy(eval(*condition));
      scope_ = scope;
      if (!passes) continue;
    }
    out = std::move(item);
    return true;
  }
}

bool Interpreter::advance(LoopObject& loop) {
  Value item;
  if (loop.peeked) {
    if (!loop.has_after) return false;
    item = std::move(loop.after);
    loop.peeked = false;
  } else if (!pull(loop, item)) {
    return false;
  }
  ++loop.index0;
  loop.before = std::move(loop.current);
  loop.current = std::move(item);
  return true;
}

int64_t Interpreter::loop_length(LoopObject& loop) {
  if (loop.length >= 0) return loop.length;
  std::vector<Value> rest;
  for (Value item; pull(loop, item);) rest.push_back(std::move(item));
  loop.length = static_cast<int64_t>(rest.size()) + loop.index0 + 1 + (loop.peeked && loop.has_after);
  loop.source = nullptr;
  loop.items = std::move(rest);
  loop.next = 0;
  loop.settled = true;
  return loop.length;
}

bool Interpreter::loop_member(LoopObject& loop, const std::string& name, Value& out) {
  const auto peek = [&] {
    if (!loop.peeked) {
      loop.peeked = true;
      loop.has_after = pull(loop, loop.after);
    }
    return loop.has_after;
  };
  if (name == "index")
    out = loop.index0 + 1;
  else if (name == "index0")
    out = loop.index0;
  else if (name == "first")
    out = loop.index0 == 0;
  else if (name == "last")
    out = !peek();
  else if (name == "length")
    out = loop_length(loop);
  else if (name == "revindex")
    out = loop_length(loop) - loop.index0;
  else if (name == "revindex0")
    out = loop_length(loop) - loop.index0 - 1;
  else if (name == "depth")
    out = loop.depth;
  else if (name == "depth0")
    out = loop.depth - 1;
  else if (name == "previtem")
    out = loop.index0 == 0 ? heap.undefined("there is no previous item") : loop.before;
  else if (name == "nextitem")
    out = peek() ? loop.after : heap.undefined("there is no next item");
  else
    return false;
  return true;
}

// loop(items) in a recursive loop: the loop's text for them.
Value Interpreter::recurse(LoopObject& loop, const Args& args) {
  if (!loop.statement->flag) trouble("The loop must have the 'recursive' marker to be called recursively.");
  const Bound bound(args, "loop", {"iterable"}, 1);
  if (++calls_ > heap.budget.limits.calls) trouble("maximum recursion depth exceeded in a recursive loop");
  std::string buffer;
  std::string* const out = out_;
  out_ = &buffer;
  run_loop(*loop.statement, loop.scope, bound[0], loop.depth + 1);
  out_ = out;
  --calls_;
  return heap.text(std::move(buffer), autoescape_);
}

}  // namespace apus::jinja
