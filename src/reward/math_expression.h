// SPDX-License-Identifier: Apache-2.0
// A mathematical expression of LaTeX or of plain text, to be compared with another by its values. No unit, no list, no
// relation: reward/math_answer.h takes those apart before.
#pragma once

#include <complex>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "reward/exact_number.h"

namespace apus {

class MathExpression {
 public:
  // Nothing when the text is none. Nesting and length are bounded.
  static std::optional<MathExpression> parse(std::string_view text);
  // i is the imaginary unit. Nan where it has no value.
  std::complex<double> value(const std::map<std::string, double>& variables) const;
  std::set<std::string> variables() const;
  std::optional<ExactNumber> exact() const;  // of sums, products, quotients and whole powers of decimal numbers
  bool rounded() const;                      // does it hold a number with a decimal point?

  struct Node {
    // n number, i imaginary unit, v variable, + - * / ^ ~ (minus), f function, l logarithm to a base, r root, b
    // binomial
    char kind;
    double number = 0;
    std::string name = {};  // of a number its digits, where it was written with some
    std::vector<std::unique_ptr<Node>> parts = {};
  };

 private:
  std::unique_ptr<Node> root_;
};

// Fractions are compared exactly. Else their values are, at several points; a decimal number stands for what rounds to
// it at six decimals, as math-verify has it: 0.333333 is 1/3, and 0.3333 is not.
bool same_expression(const MathExpression& a, const MathExpression& b);

}  // namespace apus
