// SPDX-License-Identifier: Apache-2.0
// What Jinja finds out when it compiles: filters and tests that do not exist (outside of branches, where they may never
// be reached), break outside of a loop. Also binds filters and tests, and notes what macros use.
#include <algorithm>
#include <utility>

#include "text/jinja/ast.h"
#include "text/jinja/interpreter.h"

namespace apus::jinja {

namespace {

class Checker {
 public:
  void body(Body& statements, bool maybe, bool in_loop) {
    for (auto& stmt : statements) statement(*stmt, maybe, in_loop);
  }

 private:
  // `maybe`: in a branch, so that a missing filter is an error only when reached.
  void statement(Stmt& stmt, bool maybe, bool in_loop) {
    using Kind = Stmt::Kind;
    if ((stmt.kind == Kind::Break || stmt.kind == Kind::Continue) && !in_loop) {
      throw Problem{str("'", stmt.kind == Kind::Break ? "break" : "continue", "' outside loop"), false, stmt.line};
    }
    const bool macro = stmt.kind == Kind::Macro || stmt.kind == Kind::CallBlock;
    const bool function = macro || stmt.kind == Kind::Generation || stmt.kind == Kind::Block || stmt.flag;
    const bool branch = stmt.kind == Kind::If;
    if (loops_ > 0 && (stmt.kind == Kind::For || stmt.kind == Kind::Set || stmt.kind == Kind::SetBlock))
      no_loop_in(*stmt.exprs[0]);
    loops_ += stmt.kind == Kind::For;
    const Uses outer = macro ? std::exchange(uses_, {}) : uses_;
    for (auto& expr : stmt.exprs) expression(expr.get(), branch || maybe);
    for (auto& expr : stmt.defaults) expression(expr.get(), false);
    for (size_t i = 0; i < stmt.bodies.size(); ++i) {
      const bool loop = stmt.kind == Kind::For ? i == 0 || (in_loop && !stmt.flag) : in_loop && !function;
      body(stmt.bodies[i], branch || (maybe && keeps_branch(stmt.kind)), loop);
    }
    loops_ -= stmt.kind == Kind::For;
    if (!macro) return;
    stmt.uses_caller = uses_.caller, stmt.uses_varargs = uses_.varargs, stmt.uses_kwargs = uses_.kwargs;
    const size_t must = stmt.parameters.size() - stmt.defaults.size();
    if (stmt.uses_caller &&
        std::count(stmt.parameters.begin(), stmt.parameters.begin() + static_cast<std::ptrdiff_t>(must), "caller")) {
      throw Problem{
          "When defining macros or call blocks the special \"caller\" argument must be omitted or be given a "
          "default.",
          false, stmt.line};
    }
    uses_ = {outer.caller || uses_.caller, outer.varargs || uses_.varargs, outer.kwargs || uses_.kwargs};
  }

  // Within a for statement `loop` is its own, whatever the depth.
  static void no_loop_in(const Expr& target) {
    if (target.kind == Expr::Kind::Name && target.name == "loop")
      throw Problem{"Can't assign to special loop variable in for-loop target", false, target.line};
    for (const ExprPtr& part : target.items) no_loop_in(*part);
  }

  // Statements that open a scope of their own start anew: Jinja compiles their bodies without regard to the branch.
  static bool keeps_branch(Stmt::Kind kind) { return kind == Stmt::Kind::If; }

  void expression(Expr* expr, bool maybe) {
    if (!expr) return;
    if (expr->kind == Expr::Kind::Name) {
      uses_.caller |= expr->name == "caller";
      uses_.varargs |= expr->name == "varargs";
      uses_.kwargs |= expr->name == "kwargs";
    }
    if (expr->kind == Expr::Kind::Filter) expr->filter = find_filter(expr->name);
    if (expr->kind == Expr::Kind::Test) expr->test = find_test(expr->name);
    if (!maybe && expr->kind == Expr::Kind::Filter && !expr->filter) missing("filter", *expr);
    if (!maybe && expr->kind == Expr::Kind::Test && !expr->test) missing("test", *expr);
    const bool branch = maybe || expr->kind == Expr::Kind::Conditional;
    for (auto& item : expr->items) expression(item.get(), branch);
    for (auto& [name, value] : expr->keywords) expression(value.get(), branch);
    expression(expr->star.get(), branch);
    expression(expr->star_star.get(), branch);
  }

  [[noreturn]] static void missing(const char* what, const Expr& expr) {
    throw Problem{str("No ", what, " named '", expr.name, "'."), false, expr.line};
  }

  struct Uses {
    bool caller = false, varargs = false, kwargs = false;
  };
  Uses uses_;
  int loops_ = 0;  // for statements around
};

}  // namespace

void check_program(Program& program) { Checker().body(program.body, false, false); }

}  // namespace apus::jinja
