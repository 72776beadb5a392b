// SPDX-License-Identifier: Apache-2.0
// Tokens to statements and expressions.
#pragma once

#include <initializer_list>
#include <set>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace apus::jinja {

class Parser {
 public:
  explicit Parser(Program& program) : program_(program), tokens_(tokenize(program.source)) {}
  Body parse();

 private:
  using Words = std::initializer_list<std::string_view>;
  class Nest;

  // parser.cpp: statements
  std::unique_ptr<Stmt> statement();
  Body statements(Words ends, bool drop_end);
  Body body_until(const Words* ends);
  std::unique_ptr<Stmt> parse_if(), parse_for(), parse_set(), parse_with(), parse_macro(), parse_call(),
      parse_filter_block();
  std::unique_ptr<Stmt> parse_block(), parse_generation(), parse_autoescape(), parse_print(), parse_impossible();
  void signature(Stmt& stmt);
  ExprPtr assign_target(bool with_attribute, std::string_view end = {});
  [[noreturn]] void unknown_tag(const std::string& name);
  std::unique_ptr<Stmt> make(Stmt::Kind kind) { return std::make_unique<Stmt>(kind, here().line); }

  // parser_expr.cpp: expressions
  ExprPtr expression(bool conditional = true);
  ExprPtr tuple(bool simple = false, bool conditional = true, std::string_view end = {}, bool parentheses = false,
                bool with_attribute = false);
  ExprPtr parse_or(), parse_and(), parse_not(), parse_compare(), parse_sum(), parse_concat(), parse_product(),
      parse_power();
  ExprPtr parse_unary(bool with_filter = true);
  ExprPtr primary(bool with_attribute = false);
  ExprPtr constant();
  ExprPtr call(ExprPtr callee);
  ExprPtr postfix(ExprPtr expr);
  ExprPtr subscript(ExprPtr expr);
  ExprPtr index_or_slice(ExprPtr base);
  ExprPtr filters_and_tests(ExprPtr expr);
  ExprPtr filter(ExprPtr expr, bool inside_tag = false);
  ExprPtr test(ExprPtr expr);
  void arguments(Expr& call);
  ExprPtr name_node(const std::string& name);
  std::string dotted_name();
  ExprPtr make(Expr::Kind kind, ExprPtr a = nullptr, ExprPtr b = nullptr);
  ExprPtr sized(ExprPtr expr);  // refuses trees that are too high

  // tokens
  const Token& here() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool skip_name(std::string_view name) { return here().name(name) && (next(), true); }
  bool skip_op(std::string_view op) { return here().op(op) && (next(), true); }
  const Token& expect(Token::Type type, std::string_view text, const char* what);
  void expect_op(std::string_view op);
  std::string expect_name();
  [[noreturn]] void problem(std::string message, int line = 0) const;

  Program& program_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  std::set<std::string> blocks_;
  std::vector<std::string> open_tags_;
  std::vector<std::vector<std::string>> awaited_;
};

// Counts how deep the text nests; a hostile template must not use up the stack.
class Parser::Nest {
 public:
  explicit Nest(Parser& parser) : parser_(parser) {
    if (++parser_.depth_ > kDeepest) parser_.problem("nested too deeply");
  }
  ~Nest() { --parser_.depth_; }
  Nest(const Nest&) = delete;
  Nest& operator=(const Nest&) = delete;

 private:
  static constexpr int kDeepest = 200;
  Parser& parser_;
};

}  // namespace apus::jinja
