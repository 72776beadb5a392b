// SPDX-License-Identifier: Apache-2.0
// The parser's statements.
#include "text/jinja/parser.h"

#include <algorithm>

#include "base/nearest.h"

namespace apus::jinja {

using Type = Token::Type;

void Parser::problem(std::string message, int line) const {
  throw Problem{std::move(message), false, line ? line : here().line};
}

const Token& Parser::expect(Type type, std::string_view text, const char* what) {
  if (here().type != type || (!text.empty() && here().text != text)) {
    if (here().type == Type::End) problem(str("unexpected end of template, expected '", what, "'."));
    problem(str("expected token '", what, "', got '", here().describe(), "'"));
  }
  return next();
}

void Parser::expect_op(std::string_view op) { expect(Type::Operator, op, std::string(op).c_str()); }
std::string Parser::expect_name() { return expect(Type::Name, "", "name").text; }

void Parser::unknown_tag(const std::string& name) {
  std::string message = name.empty() ? "Unexpected end of template." : str("Encountered unknown tag '", name, "'.");
  if (!awaited_.empty()) {
    std::vector<std::string> wanted;
    for (const std::string& tag : awaited_.back()) wanted.push_back("'" + tag + "'");
    const bool elsewhere = std::any_of(awaited_.begin(), awaited_.end(), [&](const auto& tags) {
      return std::find(tags.begin(), tags.end(), name) != tags.end();
    });
    message += elsewhere
                   ? " You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for "
                   : " Jinja was looking for the following tags: ";
    message += join(wanted, " or ") + ".";
  }
  if (!open_tags_.empty()) message += " The innermost block that needs to be closed is '" + open_tags_.back() + "'.";
  problem(message);
}

Body Parser::parse() { return body_until(nullptr); }

// Up to a tag whose name is among `ends`, which becomes the current token; or the end of the text.
Body Parser::body_until(const Words* ends) {
  Body body;
  std::unique_ptr<Stmt> output;
  const auto flush = [&] {
    if (output) body.push_back(std::move(output));
  };
  const auto add = [&](ExprPtr expr) {
    if (!output) output = make(Stmt::Kind::Output);
    output->exprs.push_back(std::move(expr));
  };
  while (here().type != Type::End) {
    if (here().type == Type::Data) {
      auto data = make(Expr::Kind::Constant);
      data->value = Value(std::make_shared<const Text>(next().text, nullptr), /*markup=*/true);
      add(std::move(data));
    } else if (here().type == Type::VariableBegin) {
      next();
      add(tuple());
      expect(Type::VariableEnd, "", "end of print statement");
    } else {
      flush();
      expect(Type::BlockBegin, "", "begin of statement block");
      if (ends && here().type == Type::Name && std::find(ends->begin(), ends->end(), here().text) != ends->end())
        return body;
      body.push_back(statement());
      expect(Type::BlockEnd, "", "end of statement block");
    }
  }
  flush();
  if (ends) unknown_tag("");
  return body;
}

Body Parser::statements(Words ends, bool drop_end) {
  skip_op(":");
  expect(Type::BlockEnd, "", "end of statement block");
  awaited_.emplace_back(ends.begin(), ends.end());
  Body body = body_until(&ends);
  awaited_.pop_back();
  if (drop_end) next();
  return body;
}

std::unique_ptr<Stmt> Parser::statement() {
  const Nest nest(*this);
  if (here().type != Type::Name) problem("tag name expected");
  const std::string name = here().text;
  struct Tag {
    std::string_view name;
    std::unique_ptr<Stmt> (Parser::*parse)();
  };
  static constexpr Tag kTags[] = {{"if", &Parser::parse_if},
                                  {"for", &Parser::parse_for},
                                  {"set", &Parser::parse_set},
                                  {"with", &Parser::parse_with},
                                  {"macro", &Parser::parse_macro},
                                  {"call", &Parser::parse_call},
                                  {"filter", &Parser::parse_filter_block},
                                  {"block", &Parser::parse_block},
                                  {"generation", &Parser::parse_generation},
                                  {"autoescape", &Parser::parse_autoescape},
                                  {"print", &Parser::parse_print},
                                  {"include", &Parser::parse_impossible},
                                  {"import", &Parser::parse_impossible},
                                  {"from", &Parser::parse_impossible},
                                  {"extends", &Parser::parse_impossible}};
  if (name == "break" || name == "continue") {
    auto stmt = make(name == "break" ? Stmt::Kind::Break : Stmt::Kind::Continue);
    next();
    return stmt;
  }
  for (const Tag& tag : kTags) {
    if (tag.name != name) continue;
    open_tags_.push_back(name);
    auto stmt = (this->*tag.parse)();
    open_tags_.pop_back();
    return stmt;
  }
  unknown_tag(name);
}

std::unique_ptr<Stmt> Parser::parse_if() {
  auto stmt = make(Stmt::Kind::If);
  next();
  for (;;) {
    stmt->exprs.push_back(tuple(false, false));
    stmt->bodies.push_back(statements({"elif", "else", "endif"}, false));
    const std::string end = next().text;
    if (end == "elif") continue;
    if (end == "else") stmt->bodies.push_back(statements({"endif"}, true));
    return stmt;
  }
}

std::unique_ptr<Stmt> Parser::parse_for() {
  auto stmt = make(Stmt::Kind::For);
  next();
  stmt->exprs.push_back(assign_target(false, "in"));
  const Expr& target = *stmt->exprs.back();
  const auto is_loop = [](const Expr& expr) { return expr.kind == Expr::Kind::Name && expr.name == "loop"; };
  if (is_loop(target) ||
      std::any_of(target.items.begin(), target.items.end(), [&](const auto& item) { return is_loop(*item); })) {
    problem("Can't assign to special loop variable in for-loop target");
  }
  expect(Type::Name, "in", "in");
  stmt->exprs.push_back(tuple(false, false, "recursive"));
  stmt->exprs.push_back(skip_name("if") ? expression() : nullptr);
  stmt->flag = skip_name("recursive");
  stmt->symbol = program_.symbol("loop");
  stmt->bodies.push_back(statements({"endfor", "else"}, false));
  if (next().text == "else")
    stmt->bodies.push_back(statements({"endfor"}, true));
  else
    stmt->bodies.emplace_back();
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_set() {
  auto stmt = make(Stmt::Kind::Set);
  next();
  stmt->exprs.push_back(assign_target(true));
  if (skip_op("=")) {
    stmt->exprs.push_back(tuple());
    return stmt;
  }
  stmt->kind = Stmt::Kind::SetBlock;
  stmt->symbol = program_.symbol(kBlockText);
  stmt->exprs.push_back(here().op("|") ? filter(name_node(kBlockText)) : nullptr);
  stmt->bodies.push_back(statements({"endset"}, true));
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_with() {
  auto stmt = make(Stmt::Kind::With);
  next();
  while (here().type != Type::BlockEnd) {
    if (!stmt->targets.empty()) expect_op(",");
    stmt->targets.push_back(assign_target(false));
    expect_op("=");
    stmt->exprs.push_back(expression());
  }
  stmt->bodies.push_back(statements({"endwith"}, true));
  return stmt;
}

void Parser::signature(Stmt& stmt) {
  expect_op("(");
  while (!here().op(")")) {
    if (!stmt.parameters.empty()) expect_op(",");
    const std::string name = expect_name();
    if (std::find(stmt.parameters.begin(), stmt.parameters.end(), name) != stmt.parameters.end())
      problem(str("duplicate argument '", name, "' in a macro"));
    stmt.parameters.push_back(name);
    stmt.parameter_symbols.push_back(program_.symbol(stmt.parameters.back()));
    if (skip_op("="))
      stmt.defaults.push_back(expression());
    else if (!stmt.defaults.empty())
      problem("non-default argument follows default argument");
  }
  expect_op(")");
}

std::unique_ptr<Stmt> Parser::parse_macro() {
  auto stmt = make(Stmt::Kind::Macro);
  next();
  stmt->name = expect_name();
  stmt->symbol = program_.symbol(stmt->name);
  signature(*stmt);
  stmt->bodies.push_back(statements({"endmacro"}, true));
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_call() {
  auto stmt = make(Stmt::Kind::CallBlock);
  next();
  stmt->name = "caller";
  if (here().op("(")) signature(*stmt);
  stmt->exprs.push_back(expression());
  if (stmt->exprs[0]->kind != Expr::Kind::Call) problem("expected call", stmt->line);
  stmt->bodies.push_back(statements({"endcall"}, true));
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_filter_block() {
  auto stmt = make(Stmt::Kind::FilterBlock);
  next();
  stmt->symbol = program_.symbol(kBlockText);
  stmt->exprs.push_back(filter(name_node(kBlockText), true));
  stmt->bodies.push_back(statements({"endfilter"}, true));
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_block() {
  auto stmt = make(Stmt::Kind::Block);
  next();
  stmt->name = expect_name();
  if (!blocks_.insert(stmt->name).second) problem(str("block '", stmt->name, "' defined twice"));
  stmt->flag = skip_name("scoped");
  if (skip_name("required")) problem("a required block needs a template that extends this one");
  if (here().op("-")) problem("Block names in Jinja have to be valid Python identifiers and may not contain hyphens");
  stmt->bodies.push_back(statements({"endblock"}, true));
  skip_name(stmt->name);
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_generation() {
  auto stmt = make(Stmt::Kind::Generation);
  next();
  stmt->bodies.push_back(statements({"endgeneration"}, true));
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_autoescape() {
  auto stmt = make(Stmt::Kind::Autoescape);
  next();
  stmt->exprs.push_back(expression());
  stmt->bodies.push_back(statements({"endautoescape"}, true));
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_print() {
  auto stmt = make(Stmt::Kind::Output);
  next();
  while (here().type != Type::BlockEnd) {
    if (!stmt->exprs.empty()) expect_op(",");
    stmt->exprs.push_back(expression());
  }
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_impossible() {
  auto stmt = make(Stmt::Kind::Impossible);
  stmt->name = next().text;
  while (here().type != Type::BlockEnd && here().type != Type::End) next();
  return stmt;
}

// A name, namespace.attribute, or a tuple of such; `end` is the keyword that follows.
ExprPtr Parser::assign_target(bool with_attribute, std::string_view end) {
  ExprPtr target = tuple(true, true, end, false, with_attribute);
  const auto check = [&](const auto& self, const Expr& expr) -> void {
    if (expr.kind == Expr::Kind::Tuple) {
      for (const ExprPtr& item : expr.items) self(self, *item);
    } else if (expr.kind != Expr::Kind::Name && expr.kind != Expr::Kind::Attribute) {
      problem(str("can't assign to '", expr.kind == Expr::Kind::Constant ? "const" : "expression", "'"), expr.line);
    }
  };
  check(check, *target);
  return target;
}

std::shared_ptr<const Program> parse_program(std::string_view source, std::string name) {
  auto program = std::make_shared<Program>();
  program->source = std::string(source);
  program->name = std::move(name);
  program->body = Parser(*program).parse();
  check_program(*program);
  return program;
}

}  // namespace apus::jinja
