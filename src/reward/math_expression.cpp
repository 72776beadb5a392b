// SPDX-License-Identifier: Apache-2.0
#include "reward/math_expression.h"

#include <cctype>
#include <cmath>
#include <cstdlib>

namespace apus {
namespace {

using Node = MathExpression::Node;
using NodePtr = std::unique_ptr<Node>;

constexpr size_t kLongestExpression = 2000;
constexpr int kDeepestExpression = 60;

// Thrown within this file alone: the text is no expression.
struct NoExpression {};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

NodePtr node(char kind, NodePtr a, NodePtr b = nullptr) {
  auto out = std::make_unique<Node>(Node{.kind = kind});
  out->parts.push_back(std::move(a));
  if (b) out->parts.push_back(std::move(b));
  return out;
}
NodePtr number_node(double value) { return std::make_unique<Node>(Node{.kind = 'n', .number = value}); }

const std::set<std::string>& functions() {
  static const std::set<std::string> all = {"sin",    "cos",    "tan", "cot", "sec", "csc",  "arcsin",
                                            "arccos", "arctan", "ln",  "log", "exp", "sqrt", "abs"};
  return all;
}

class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view text) : text_(text) {}
  NodePtr whole() {
    if (text_.size() > kLongestExpression) throw NoExpression();
    NodePtr out = sum();
    skip();
    if (at_ != text_.size()) throw NoExpression();
    return out;
  }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(std::string_view what) {
    skip();
    if (text_.substr(at_, what.size()) != what) return false;
    // A command's name ends where its letters end.
    if (what[0] == '\\' && is_letter(what.back()) && at_ + what.size() < text_.size() &&
        is_letter(text_[at_ + what.size()]))
      return false;
    at_ += what.size();
    return true;
  }
  void expect(std::string_view what) {
    if (!take(what)) throw NoExpression();
  }

  struct Deeper {
    explicit Deeper(int& depth) : depth_(depth) {
      if (++depth_ > kDeepestExpression) throw NoExpression();
    }
    ~Deeper() { --depth_; }
    int& depth_;
  };

  NodePtr sum() {
    const Deeper deeper(depth_);
    NodePtr left = product();
    for (;;) {
      if (take("+"))
        left = node('+', std::move(left), product());
      else if (take("-"))
        left = node('-', std::move(left), product());
      else
        return left;
    }
  }

  NodePtr product() {
    NodePtr left = signed_factor();
    for (;;) {
      if (take("*") || take("\\cdot") || take("\\times")) {
        left = node('*', std::move(left), signed_factor());
      } else if (take("/") || take("\\div")) {
        left = node('/', std::move(left), signed_factor());
      } else if (begins_factor()) {
        const bool mixed = left->kind == 'n' && left->number == std::floor(left->number) && begins_fraction();
        NodePtr right = power();
        const char kind = mixed && simple_fraction(*right) ? '+' : '*';
        left = node(kind, std::move(left), std::move(right));
      } else {
        return left;
      }
    }
  }

  bool begins_fraction() {
    skip();
    return text_.substr(at_, 5) == "\\frac";
  }
  static bool simple_fraction(const Node& n) {
    return n.kind == '/' && n.parts[0]->kind == 'n' && n.parts[1]->kind == 'n';
  }

  bool begins_factor() {
    const char c = peek();
    if (c == '\\') {
      for (const char* other : {"\\cdot", "\\times", "\\div", "\\cup", "\\pm", "\\mp", "\\rfloor", "\\rceil"})
        if (text_.substr(at_, std::string_view(other).size()) == other) return false;
      return true;
    }
    return is_digit(c) || is_letter(c) || c == '(' || c == '{' || c == '.';
  }

  NodePtr signed_factor() {
    const Deeper deeper(depth_);
    if (take("-")) return node('~', signed_factor());
    if (take("+")) return signed_factor();
    return power();
  }

  NodePtr power() {
    NodePtr base = primary();
    for (;;) {
      if (take("!")) {
        base = node('f', std::move(base));
        base->name = "!";
      } else if (take("^")) {
        base = node('^', std::move(base), exponent());
      } else if (take("**")) {
        base = node('^', std::move(base), signed_factor());
      } else if (take("\\degree")) {
        if (angles_ > 0) base = node('*', std::move(base), number_node(M_PI / 180));
      } else {
        return base;
      }
    }
  }
  NodePtr exponent() {
    const Deeper deeper(depth_);
    if (take("-")) return node('~', exponent());
    return peek() == '(' || is_digit(peek()) ? primary_of_plain_power() : group();
  }
  // Plain text writes x^10 and x^(1/2), where LaTeX has braces.
  NodePtr primary_of_plain_power() { return primary(); }

  // {...}, or a single sign as LaTeX reads \frac12.
  NodePtr group() {
    const Deeper deeper(depth_);
    if (take("{")) {
      NodePtr out = sum();
      expect("}");
      return out;
    }
    const char c = peek();
    if (is_digit(c)) return ++at_, digits_node(std::string(1, c));
    if (is_letter(c)) return ++at_, variable(std::string(1, c));
    return primary();
  }

  NodePtr variable(const std::string& name) {
    std::string full = name;
    if (at_ < text_.size() && text_[at_] == '_') {
      ++at_;
      if (take("{")) {
        const size_t end = text_.find('}', at_);
        if (end == std::string_view::npos) throw NoExpression();
        full += "_" + std::string(text_.substr(at_, end - at_));
        at_ = end + 1;
      } else if (at_ < text_.size()) {
        full += str_of('_', text_[at_++]);
      }
    }
    if (full == "e") return number_node(M_E);
    if (full == "i") return std::make_unique<Node>(Node{.kind = 'i'});
    return std::make_unique<Node>(Node{.kind = 'v', .name = full});
  }
  static std::string str_of(char a, char b) { return {a, b}; }

  NodePtr primary() {
    const Deeper deeper(depth_);
    const char c = peek();
    if (is_digit(c) || c == '.') return decimal();
    for (const auto& [open, close] : {std::pair{"(", ")"}, {"{", "}"}, {"[", "]"}, {"|", "|"}})
      if (take(open)) {
        NodePtr inner = sum();
        expect(close);
        if (*open != '|') return inner;
        NodePtr out = node('f', std::move(inner));
        out->name = "abs";
        return out;
      }
    if (c == '\\') return command();
    if (is_letter(c)) {
      for (const std::string& name : functions())
        if (name.size() > 2 && text_.substr(at_, name.size()) == name) {
          at_ += name.size();
          return function(name);
        }
      if (text_.substr(at_, 2) == "pi") return at_ += 2, number_node(M_PI);
      ++at_;
      return variable(std::string(1, c));
    }
    throw NoExpression();
  }

  NodePtr decimal() {
    std::string digits;
    bool point = false;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '.' && !point)
        point = true;
      else if (!is_digit(c))
        break;
      digits += c, ++at_;
    }
    if (digits == ".") throw NoExpression();
    // 3e5, unless e begins a word or is a factor.
    if (at_ + 1 < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      size_t end = at_ + 1;
      if (text_[end] == '-' || text_[end] == '+') ++end;
      const size_t first = end;
      while (end < text_.size() && is_digit(text_[end])) ++end;
      if (end > first) digits += text_.substr(at_, end - at_), at_ = end;
    }
    return digits_node(digits);
  }
  static NodePtr digits_node(const std::string& digits) {
    NodePtr out = number_node(std::strtod(digits.c_str(), nullptr));
    out->name = digits;
    return out;
  }

  NodePtr function(const std::string& name) {
    NodePtr base, power_of;
    if (name == "log" && take("_")) base = group();
    if (take("^")) power_of = group();  // \sin^2 x
    const Deeper angle(angles_);
    NodePtr inner = take("{") ? closed("}") : take("(") ? closed(")") : power();
    NodePtr out;
    if (base) {
      out = node('l', std::move(inner), std::move(base));
    } else {
      out = node('f', std::move(inner));
      out->name = name;
    }
    return power_of ? node('^', std::move(out), std::move(power_of)) : std::move(out);
  }
  NodePtr closed(std::string_view close) {
    NodePtr inner = sum();
    expect(close);
    return inner;
  }

  NodePtr command() {
    if (take("\\frac")) {
      NodePtr above = group();
      return node('/', std::move(above), group());
    }
    if (take("\\binom")) {
      NodePtr above = group();
      return node('b', std::move(above), group());
    }
    if (take("\\sqrt")) {
      NodePtr degree;
      if (take("[")) degree = closed("]");
      NodePtr inner = group();
      return degree ? node('r', std::move(inner), std::move(degree)) : node('r', std::move(inner), number_node(2));
    }
    for (const char* name : {"floor", "ceil"})
      if (take(std::string("\\l") + name)) {
        NodePtr out = node('f', closed(std::string("\\r") + name));
        out->name = name;
        return out;
      }
    if (take("\\pi")) return number_node(M_PI);
    if (take("\\infty")) return number_node(INFINITY);
    size_t end = at_ + 1;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    const std::string name(text_.substr(at_ + 1, end - at_ - 1));
    if (name.empty()) throw NoExpression();
    at_ = end;
    if (functions().count(name)) return function(name);
    static const std::set<std::string> greek = {"alpha", "beta",  "gamma", "delta", "epsilon", "theta", "lambda", "mu",
                                                "rho",   "sigma", "tau",   "phi",   "omega",   "Delta", "varphi"};
    if (!greek.count(name)) throw NoExpression();
    return variable("\\" + name);
  }

  const std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0, angles_ = 0;  // the latter: functions around, within which degrees count
};

}  // namespace

std::optional<MathExpression> MathExpression::parse(std::string_view text) {
  try {
    MathExpression out;
    out.root_ = ExpressionParser(text).whole();
    return out;
  } catch (const NoExpression&) {
    return std::nullopt;
  }
}

}  // namespace apus
