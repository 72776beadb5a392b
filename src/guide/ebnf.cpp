// SPDX-License-Identifier: Apache-2.0
#include "guide/ebnf.h"

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "guide/regex.h"
#include "text/unicode.h"

namespace apus::guide {

namespace {

constexpr size_t kMostEbnfParts = 50'000;
constexpr int kDeepestEbnf = 100;

// What stands on the right of a rule.
struct Part {
  enum Kind { Chars, Rule, Sequence, Choice, Repeat } kind = Sequence;
  Expr chars{};               // Chars: one character, or a literal
  std::string name{};         // Rule
  std::vector<Part> parts{};  // Repeat: one
  uint32_t min = 1, max = 1;  // Repeat
};

class EbnfParser {
 public:
  EbnfParser(const std::string& text, const std::string& where) : all_(text), where_(where) {
    require(unicode::valid_prefix(text) == text.size(), Fault::Usage, where, ": the grammar is not UTF-8");
  }

  std::map<std::string, Part> rules() {
    std::map<std::string, Part> out;
    for (skip(); at_ < all_.size(); skip()) {
      const auto name = rule_head();
      if (!name) bad("a rule must begin with its name and ::=");
      if (out.count(*name)) bad("the rule '" + *name + "' is there twice");
      out.emplace(*name, choice(0));
    }
    return out;
  }

 private:
  [[noreturn]] void bad(const std::string& why) const {
    size_t line = 1;
    for (size_t i = 0; i < std::min(at_, all_.size()); ++i) line += all_[i] == '\n';
    fail(Fault::Usage, where_, ", line ", line, ": ", why);
  }
  static bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-'; }
  bool sees(std::string_view text) const { return std::string_view(all_).substr(at_).starts_with(text); }
  bool eat(std::string_view text) {
    if (!sees(text)) return false;
    at_ += text.size();
    return true;
  }
  void skip() {
    while (at_ < all_.size()) {
      if (all_[at_] == '#')
        at_ = std::min(all_.find('\n', at_), all_.size());
      else if (std::string_view(" \t\r\n").find(all_[at_]) != std::string_view::npos)
        ++at_;
      else
        return;
    }
  }
  std::string name() {
    const size_t begin = at_;
    while (at_ < all_.size() && in_name(all_[at_])) ++at_;
    return all_.substr(begin, at_ - begin);
  }
  // A name that a rule begins with; nothing, and nothing read, where it is a reference.
  std::optional<std::string> rule_head() {
    const size_t begin = at_;
    std::string found = name();
    skip();
    if (!found.empty() && eat("::=")) return found;
    at_ = begin;
    return std::nullopt;
  }
  bool at_next_rule() {
    const size_t begin = at_;
    const bool is = rule_head().has_value();
    at_ = begin;
    return is;
  }

  Part choice(int depth) {
    if (depth > kDeepestEbnf) bad("groups nest too deeply");
    Part all{.kind = Part::Choice};
    do all.parts.push_back(sequence(depth));
    while (eat("|"));
    return all.parts.size() == 1 ? std::move(all.parts[0]) : all;
  }
  Part sequence(int depth) {
    Part all;
    for (skip(); at_ < all_.size() && !sees("|") && !sees(")") && !at_next_rule(); skip()) {
      if (++parts_ > kMostEbnfParts) bad("the grammar is too large");
      all.parts.push_back(repeated(one(depth)));
    }
    return all;
  }
  Part one(int depth) {
    if (eat("(")) {
      Part inner = choice(depth + 1);
      if (!eat(")")) bad("a '(' without its ')'");
      return inner;
    }
    if (sees("\"")) return literal();
    if (sees("[")) return char_class();
    if (eat(".")) return {.kind = Part::Chars, .chars = {.kind = Expr::Chars, .set = all_chars()}};
    Part rule{.kind = Part::Rule, .name = name()};
    if (rule.name.empty()) bad(str("'", all_.substr(at_, 1), "' is not expected here"));
    return rule;
  }
  // What escapes mean is the same as in regular expressions.
  Part of_regex(const std::string& pattern) const {
    return {.kind = Part::Chars, .chars = parse_regex(pattern, where_)};
  }
  Part literal() {
    std::string pattern;
    for (++at_;; ++at_) {
      if (at_ >= all_.size() || all_[at_] == '\n') bad("a text does not end");
      if (all_[at_] == '"') break;
      if (all_[at_] == '\\' && at_ + 1 < all_.size())
        pattern += all_[at_++];
      else if (std::string_view("^$.*+?()[]{}|/").find(all_[at_]) != std::string_view::npos)
        pattern += '\\';
      pattern += all_[at_];
    }
    ++at_;
    return of_regex(pattern);
  }
  Part char_class() {
    const size_t begin = at_;
    for (++at_; at_ < all_.size() && all_[at_] != ']'; ++at_)
      if (all_[at_] == '\\') ++at_;
    if (at_ >= all_.size()) bad("a '[' without its ']'");
    ++at_;
    return of_regex(all_.substr(begin, at_ - begin));
  }
  uint32_t number() {
    uint32_t n = 0;
    const size_t begin = at_;
    for (; at_ < all_.size() && all_[at_] >= '0' && all_[at_] <= '9' && n < 100'000; ++at_)
      n = n * 10 + static_cast<uint32_t>(all_[at_] - '0');
    if (at_ == begin || n >= 100'000) bad("a count from 0 to 99999 is missing");
    return n;
  }
  Part repeated(Part inner) {
    for (;;) {
      uint32_t min = 0, max = kUnlimited;
      if (eat("*")) {
      } else if (eat("+")) {
        min = 1;
      } else if (eat("?")) {
        max = 1;
      } else if (eat("{")) {
        min = max = number();
        if (eat(",")) max = sees("}") ? kUnlimited : number();
        if (!eat("}") || min > max) bad("a repetition must be {n}, {n,} or {n,m}");
      } else {
        return inner;
      }
      Part outer{.kind = Part::Repeat, .min = min, .max = max};
      outer.parts.push_back(std::move(inner));
      inner = std::move(outer);
    }
  }

  const std::string& all_;
  const std::string& where_;
  size_t at_ = 0, parts_ = 0;
};

class EbnfBuilder {
 public:
  EbnfBuilder(Grammar& g, const std::map<std::string, Part>& rules, const std::string& where)
      : g_(g), rules_(rules), where_(where) {}

  Node rule(const std::string& name) {
    if (const auto known = nodes_.find(name); known != nodes_.end()) return known->second;
    const auto found = rules_.find(name);
    require(found != rules_.end(), Fault::Usage, where_, ": there is no rule '", name.substr(0, 64), "'");
    const Node node = nodes_.emplace(name, g_.reserve()).first->second;
    require(nodes_.size() <= kMostRules, Fault::Usage, where_, ": more than ", kMostRules, " rules");
    g_.define(node, add(found->second, Grammar::kReturn));
    return node;
  }

 private:
  static constexpr size_t kMostRules = 2'000;

  Node add(const Part& part, Node next) {
    switch (part.kind) {
      case Part::Chars:
        return add_expr(g_, part.chars, Spelling::Plain, next);
      case Part::Rule:
        return g_.call(rule(part.name), 1, 1, next);
      case Part::Sequence:
        for (size_t i = part.parts.size(); i-- > 0;) next = add(part.parts[i], next);
        return next;
      case Part::Choice: {
        std::vector<Node> ways;
        for (const Part& way : part.parts) ways.push_back(add(way, next));
        return g_.either(ways);
      }
      default:
        return g_.call(add(part.parts[0], Grammar::kReturn), part.min, part.max, next);
    }
  }

  Grammar& g_;
  const std::map<std::string, Part>& rules_;
  const std::string& where_;
  std::map<std::string, Node> nodes_;
};

}  // namespace

Node ebnf(Grammar& g, const std::string& text, const std::string& where) {
  const auto rules = EbnfParser(text, where).rules();
  require(rules.count("root") > 0, Fault::Usage, where, ": a rule named root is missing: root ::= ...");
  return EbnfBuilder(g, rules, where).rule("root");
}

}  // namespace apus::guide
