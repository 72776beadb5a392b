// SPDX-License-Identifier: Apache-2.0
// A mathematical expression of LaTeX or of plain text, to be compared with another by its values. No unit, no list, no
// relation: reward/math_answer.h takes those apart before.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace apus {

class MathExpression {
 public:
  // Nothing when the text is none. Nesting and length are bounded.
  static std::optional<MathExpression> parse(std::string_view text);
  double value(const std::map<std::string, double>& variables) const;  // nan where it has none
  std::set<std::string> variables() const;

  struct Node {
    char kind;  // n number, v variable, + - * / ^ ~ (minus), f function, l logarithm to a base, r root, b binomial
    double number = 0;
    std::string name = {};
    std::vector<std::unique_ptr<Node>> parts = {};
  };

 private:
  std::unique_ptr<Node> root_;
};

// Equal at several points, to six digits.
bool same_expression(const MathExpression& a, const MathExpression& b);

}  // namespace apus
