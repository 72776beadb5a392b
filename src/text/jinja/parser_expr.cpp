// SPDX-License-Identifier: Apache-2.0
// The parser's expressions, from the loosest binding to the tightest.
#include <algorithm>

#include "text/jinja/parser.h"

namespace apus::jinja {

using Type = Token::Type;

namespace {

constexpr int kHighest = 400;  // of an expression's tree

bool same_text(const Token& token, std::initializer_list<std::string_view> ops) {
  return token.type == Type::Operator && std::find(ops.begin(), ops.end(), token.text) != ops.end();
}

}  // namespace

ExprPtr Parser::make(Expr::Kind kind, ExprPtr a, ExprPtr b) {
  auto expr = std::make_unique<Expr>(kind, a ? a->line : here().line);
  if (a) expr->items.push_back(std::move(a));
  if (b) expr->items.push_back(std::move(b));
  return sized(std::move(expr));
}

ExprPtr Parser::sized(ExprPtr expr) {
  const auto look = [&](const ExprPtr& part) {
    if (part) expr->height = std::max(expr->height, part->height + 1);
  };
  for (const ExprPtr& item : expr->items) look(item);
  for (const auto& [name, value] : expr->keywords) look(value);
  look(expr->star), look(expr->star_star);
  if (expr->height > kHighest) problem("an expression nested too deeply");
  return expr;
}

ExprPtr Parser::name_node(const std::string& name) {
  auto expr = make(Expr::Kind::Name);
  expr->name = name;
  expr->symbol = program_.symbol(name);
  return expr;
}

ExprPtr Parser::expression(bool conditional) {
  const Nest nest(*this);
  ExprPtr expr = parse_or();
  while (conditional && skip_name("if")) {
    auto choice = std::make_unique<Expr>(Expr::Kind::Conditional, expr->line);
    choice->items.push_back(parse_or());
    choice->items.push_back(std::move(expr));
    choice->items.push_back(skip_name("else") ? expression() : nullptr);
    expr = sized(std::move(choice));
  }
  return expr;
}

ExprPtr Parser::tuple(bool simple, bool conditional, std::string_view end, bool parentheses, bool with_attribute) {
  const Nest nest(*this);
  const int line = here().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) expect_op(",");
    if (here().type == Type::VariableEnd || here().type == Type::BlockEnd || here().op(")") ||
        (!end.empty() && here().name(end))) {
      break;
    }
    items.push_back(simple ? primary(with_attribute) : expression(conditional));
    if (!here().op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items[0]);
  if (!is_tuple && !parentheses) problem(str("Expected an expression, got '", here().describe(), "'"));
  auto expr = std::make_unique<Expr>(Expr::Kind::Tuple, line);
  expr->items = std::move(items);
  return sized(std::move(expr));
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (skip_name("or")) left = make(Expr::Kind::Or, std::move(left), parse_and());
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (skip_name("and")) left = make(Expr::Kind::And, std::move(left), parse_not());
  return left;
}

ExprPtr Parser::parse_not() {
  if (!here().name("not")) return parse_compare();
  const Nest nest(*this);
  next();
  return make(Expr::Kind::Not, parse_not());
}

ExprPtr Parser::parse_compare() {
  ExprPtr left = parse_sum();
  std::unique_ptr<Expr> chain;
  for (;;) {
    std::string op;
    if (same_text(here(), {"==", "!=", "<", "<=", ">", ">="}) || here().name("in")) {
      op = next().text;
    } else if (here().name("not") && ahead().name("in")) {
      next(), next();
      op = "not in";
    } else {
      return chain ? sized(std::move(chain)) : std::move(left);
    }
    if (!chain) chain = make(Expr::Kind::Compare, std::move(left));
    chain->ops.push_back(op);
    chain->items.push_back(parse_sum());
  }
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (same_text(here(), {"+", "-"})) {
    const char op = next().text[0];
    left = make(Expr::Kind::Binary, std::move(left), parse_concat());
    left->op = op;
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  ExprPtr first = parse_product();
  if (!here().op("~")) return first;
  ExprPtr all = make(Expr::Kind::Concat, std::move(first));
  while (skip_op("~")) all->items.push_back(parse_product());
  return sized(std::move(all));
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (same_text(here(), {"*", "/", "//", "%"})) {
    const std::string op = next().text;
    left = make(Expr::Kind::Binary, std::move(left), parse_power());
    left->op = op == "//" ? 'f' : op[0];
  }
  return left;
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary();
  while (skip_op("**")) {
    left = make(Expr::Kind::Binary, std::move(left), parse_unary());
    left->op = 'p';
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  const Nest nest(*this);
  ExprPtr expr;
  if (skip_op("-"))
    expr = make(Expr::Kind::Negative, parse_unary(false));
  else if (skip_op("+"))
    expr = make(Expr::Kind::Positive, parse_unary(false));
  else
    expr = primary();
  expr = postfix(std::move(expr));
  return with_filter ? filters_and_tests(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::constant() {
  ExprPtr expr = make(Expr::Kind::Constant);
  const Token& token = next();
  if (token.type == Type::Float) {
    bool ok = false;
    expr->value = parse_real(token.text, ok);
  } else if (token.type == Type::Integer) {
    const bool based = token.text.size() > 1 && token.text[1] >= 'B';
    const char mark = based ? static_cast<char>(token.text[1] | 0x20) : ' ';
    const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    const std::string_view digits = std::string_view(token.text).substr(based ? 2 : 0);
    expr->value = parse_integer(program_.constants, digits, base);
  } else {
    std::string text = token.text;
    while (here().type == Type::String) text += next().text;
    expr->value = Value(std::make_shared<const Text>(std::move(text), nullptr));
  }
  return expr;
}

ExprPtr Parser::primary(bool with_attribute) {
  const Nest nest(*this);
  const Token& token = here();
  if (token.type == Type::String || token.type == Type::Integer || token.type == Type::Float) return constant();
  if (token.type == Type::Name) {
    const std::string name = token.text;
    const bool yes = name == "true" || name == "True";
    if (yes || name == "false" || name == "False" || name == "none" || name == "None") {
      ExprPtr expr = make(Expr::Kind::Constant);
      if (name[0] != 'n' && name[0] != 'N') expr->value = Value(yes);
      next();
      return expr;
    }
    ExprPtr expr = name_node(name);
    next();
    if (with_attribute && skip_op(".")) {
      expr->kind = Expr::Kind::Attribute;
      expr->value = Value(std::make_shared<const Text>(expect_name(), nullptr));
    }
    return expr;
  }
  if (skip_op("(")) {
    ExprPtr expr = tuple(false, true, {}, true);
    expect_op(")");
    return expr;
  }
  if (token.op("[") || token.op("{")) {
    const bool list = next().op("[");
    ExprPtr expr = make(list ? Expr::Kind::List : Expr::Kind::Dict);
    const char* close = list ? "]" : "}";
    while (!here().op(close)) {
      if (!expr->items.empty()) expect_op(",");
      if (here().op(close)) break;
      expr->items.push_back(expression());
      if (list) continue;
      expect_op(":");
      expr->items.push_back(expression());
    }
    expect_op(close);
    return sized(std::move(expr));
  }
  problem(str("unexpected '", token.describe(), "'"));
}

ExprPtr Parser::call(ExprPtr callee) {
  ExprPtr expr = make(Expr::Kind::Call, std::move(callee));
  arguments(*expr);
  return sized(std::move(expr));
}

ExprPtr Parser::postfix(ExprPtr expr) {
  for (;;) {
    if (here().op(".") || here().op("[")) {
      expr = subscript(std::move(expr));
    } else if (here().op("(")) {
      expr = call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::subscript(ExprPtr expr) {
  if (skip_op(".")) {
    const Token& token = here();
    if (token.type == Type::Integer) return make(Expr::Kind::Item, std::move(expr), constant());
    if (token.type != Type::Name) problem("expected name or number");
    ExprPtr member = make(Expr::Kind::Member, std::move(expr));
    member->name = next().text;
    member->value = Value(std::make_shared<const Text>(member->name, nullptr));
    return member;
  }
  expect_op("[");
  ExprPtr item = index_or_slice(std::move(expr));
  if (here().op(",")) {
    if (item->kind == Expr::Kind::Slice) problem("a slice among several subscripts is not supported");
    ExprPtr all = make(Expr::Kind::Tuple);
    all->items.push_back(std::move(item->items[1]));
    while (skip_op(",")) {
      if (here().op("]")) break;
      all->items.push_back(expression());
    }
    item->items[1] = sized(std::move(all));
  }
  expect_op("]");
  return sized(std::move(item));
}

ExprPtr Parser::index_or_slice(ExprPtr base) {
  if (here().op("]")) {  // x[] subscripts with the empty tuple
    return make(Expr::Kind::Item, std::move(base), make(Expr::Kind::Tuple));
  }
  ExprPtr first = here().op(":") ? nullptr : expression();
  if (!here().op(":")) return make(Expr::Kind::Item, std::move(base), std::move(first));
  next();
  const auto part = [&]() -> ExprPtr {
    return here().op(":") || here().op("]") || here().op(",") ? nullptr : expression();
  };
  ExprPtr slice = make(Expr::Kind::Slice, std::move(base));
  slice->items.push_back(std::move(first));
  slice->items.push_back(part());
  slice->items.push_back(skip_op(":") ? part() : nullptr);
  return slice;
}

ExprPtr Parser::filters_and_tests(ExprPtr expr) {
  for (;;) {
    if (here().op("|")) {
      expr = filter(std::move(expr));
    } else if (here().name("is")) {
      expr = test(std::move(expr));
    } else if (here().op("(")) {
      expr = call(std::move(expr));
    } else {
      return expr;
    }
  }
}

std::string Parser::dotted_name() {
  std::string name = expect_name();
  while (skip_op(".")) name += "." + expect_name();
  return name;
}

// One filter after another; `inside_tag`: the first one stands without its bar.
ExprPtr Parser::filter(ExprPtr expr, bool inside_tag) {
  while (inside_tag || here().op("|")) {
    if (!inside_tag) next();
    inside_tag = false;
    const int line = here().line;
    expr = make(Expr::Kind::Filter, std::move(expr));
    expr->line = line;
    expr->name = dotted_name();
    if (here().op("(")) arguments(*expr);
    expr = sized(std::move(expr));
  }
  return expr;
}

ExprPtr Parser::test(ExprPtr expr) {
  next();
  const bool negated = skip_name("not");
  ExprPtr result = make(Expr::Kind::Test, std::move(expr));
  result->name = dotted_name();
  const Token& token = here();
  const bool value = token.type == Type::String || token.type == Type::Integer || token.type == Type::Float ||
                     token.op("[") || token.op("{") ||
                     (token.type == Type::Name && !token.name("else") && !token.name("or") && !token.name("and"));
  if (token.op("(")) {
    arguments(*result);
  } else if (value) {
    if (token.name("is")) problem("You cannot chain multiple tests with is");
    result->items.push_back(postfix(primary()));
  }
  result = sized(std::move(result));
  return negated ? make(Expr::Kind::Not, std::move(result)) : std::move(result);
}

void Parser::arguments(Expr& call) {
  const int line = here().line;
  expect_op("(");
  const auto ensure = [&](bool ok) {
    if (!ok) problem("invalid syntax for function call expression", line);
  };
  bool comma = false;
  while (!here().op(")")) {
    if (comma) {
      expect_op(",");
      if (here().op(")")) break;
    }
    comma = true;
    if (skip_op("*")) {
      ensure(!call.star && !call.star_star);
      call.star = expression();
    } else if (skip_op("**")) {
      ensure(!call.star_star);
      call.star_star = expression();
    } else if (here().type == Type::Name && ahead().op("=")) {
      ensure(!call.star_star);
      const std::string name = next().text;
      next();
      call.keywords.emplace_back(name, expression());
    } else {
      ensure(!call.star && !call.star_star && call.keywords.empty());
      call.items.push_back(expression());
    }
  }
  expect_op(")");
}

}  // namespace apus::jinja
