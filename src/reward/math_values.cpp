// SPDX-License-Identifier: Apache-2.0
// The values of an expression: exact where it is a fraction, else at some points.
#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "reward/math_expression.h"

namespace apus {
namespace {

using Node = MathExpression::Node;
using NodePtr = std::unique_ptr<Node>;

double binomial(double n, double k) {
  if (n < 0 || k < 0 || n > 1000 || n != std::floor(n) || k != std::floor(k)) return NAN;
  return k > n ? 0 : std::round(std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)));
}

double apply(const std::string& name, double x) {
  if (name == "!") return x >= 0 && x == std::floor(x) && x < 171 ? std::tgamma(x + 1) : NAN;
  if (name == "floor") return std::floor(x);
  if (name == "ceil") return std::ceil(x);
  if (name == "sin") return std::sin(x);
  if (name == "cos") return std::cos(x);
  if (name == "tan") return std::tan(x);
  if (name == "cot") return 1 / std::tan(x);
  if (name == "sec") return 1 / std::cos(x);
  if (name == "csc") return 1 / std::sin(x);
  if (name == "arcsin") return std::asin(x);
  if (name == "arccos") return std::acos(x);
  if (name == "arctan") return std::atan(x);
  if (name == "ln") return std::log(x);
  if (name == "log") return std::log10(x);
  if (name == "exp") return std::exp(x);
  if (name == "sqrt") return std::sqrt(x);
  return std::fabs(x);
}

using Complex = std::complex<double>;

Complex apply(const std::string& name, Complex x) {
  if (name == "sin") return std::sin(x);
  if (name == "cos") return std::cos(x);
  if (name == "tan") return std::tan(x);
  if (name == "ln") return std::log(x);
  if (name == "exp") return std::exp(x);
  if (name == "sqrt") return std::sqrt(x);
  return name == "abs" ? Complex(std::abs(x)) : Complex(NAN);
}

// The n-th root; of what is below 0 where n is odd.
double root_of(double x, double n) {
  const bool odd = n == std::floor(n) && std::fmod(n, 2) != 0;
  return x < 0 && odd ? -std::pow(-x, 1 / n) : std::pow(x, 1 / n);
}

// What real and complex numbers have alike.
template <class Number>
std::optional<Number> arithmetic(char kind, const Number& a, const Number& b) {
  switch (kind) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    case '/':
      return a / b;
    case '^':
      return std::pow(a, b);
    case '~':
      return -a;
    default:
      return std::nullopt;
  }
}

// Real numbers as such: products with infinity, and powers without rounding.
double of_real(const Node& n, double a, double b) {
  if (const auto known = arithmetic(n.kind, a, b)) return *known;
  switch (n.kind) {
    case 'l':
      return std::log(a) / std::log(b);
    case 'r':
      return root_of(a, b);
    case 'b':
      return binomial(a, b);
    default:
      return apply(n.name, a);
  }
}

Complex of_complex(const Node& n, Complex a, Complex b) {
  if (const auto known = arithmetic(n.kind, a, b)) return *known;
  return n.kind == 'r' ? std::pow(a, 1.0 / b) : n.kind == 'f' ? apply(n.name, a) : Complex(NAN);
}

Complex evaluate(const Node& n, const std::map<std::string, double>& variables) {
  if (n.kind == 'n') return n.number;
  if (n.kind == 'i') return {0, 1};
  if (n.kind == 'v') {
    const auto found = variables.find(n.name);
    return found == variables.end() ? NAN : found->second;
  }
  const Complex a = evaluate(*n.parts[0], variables), b = n.parts.size() > 1 ? evaluate(*n.parts[1], variables) : 0;
  if (a.imag() == 0 && b.imag() == 0) {
    const double real = of_real(n, a.real(), b.real());
    if (!std::isnan(real) || std::isnan(a.real()) || std::isnan(b.real())) return real;  // else a root of less than 0
  }
  return of_complex(n, a, b);
}

std::optional<ExactNumber> exactly(const Node& n) {
  if (n.kind == 'n') return n.name.empty() ? std::nullopt : ExactNumber::of_decimal(n.name);
  if (n.parts.empty()) return std::nullopt;
  const auto a = exactly(*n.parts[0]), b = n.parts.size() > 1 ? exactly(*n.parts[1]) : a;
  if (!a || !b) return std::nullopt;
  switch (n.kind) {
    case '+':
      return ExactNumber::sum(*a, *b);
    case '-':
      return ExactNumber::sum(*a, b->negated());
    case '*':
      return ExactNumber::product(*a, *b);
    case '/':
      return ExactNumber::quotient(*a, *b);
    case '^':
      return ExactNumber::power(*a, *b);
    case '~':
      return a->negated();
    default:
      return n.kind == 'f' && n.name == "!" ? a->factorial() : std::nullopt;
  }
}

bool holds_point(const Node& n) {
  return n.name.find('.') != std::string::npos ||
         std::any_of(n.parts.begin(), n.parts.end(), [](const NodePtr& part) { return holds_point(*part); });
}

void collect_variables(const Node& n, std::set<std::string>& out) {
  if (n.kind == 'v') out.insert(n.name);
  for (const NodePtr& part : n.parts) collect_variables(*part, out);
}

// What is `rounded` was written with six decimals, or with six digits where it is small.
bool near(Complex a, Complex b, bool rounded) {
  if (a == b) return true;
  if (!std::isfinite(std::abs(a)) || !std::isfinite(std::abs(b))) return false;
  const double size = std::abs(b);
  return std::abs(a - b) <= (rounded ? std::max(1e-12, 5e-7 * std::min(1.0, 10 * size)) : 1e-9 * std::max(1e-3, size));
}

}  // namespace

Complex MathExpression::value(const std::map<std::string, double>& variables) const {
  return evaluate(*root_, variables);
}

std::optional<ExactNumber> MathExpression::exact() const { return exactly(*root_); }
bool MathExpression::rounded() const { return holds_point(*root_); }

std::set<std::string> MathExpression::variables() const {
  std::set<std::string> out;
  collect_variables(*root_, out);
  return out;
}

bool same_expression(const MathExpression& a, const MathExpression& b) {
  const auto first = a.exact(), second = b.exact();
  if (first && second && *first == *second) return true;
  const bool rounded = a.rounded() || b.rounded();
  if (first && second && (!rounded || (first->terminates() && second->terminates()))) return false;
  std::set<std::string> names = a.variables();
  names.merge(b.variables());
  Random random(1, "math.points");
  int compared = 0;
  for (int point = 0; point < 12 && compared < 5; ++point) {
    std::map<std::string, double> at;
    for (const std::string& name : names) at[name] = 0.3 + 2.4 * random.uniform();
    const Complex x = a.value(at), y = b.value(at);
    if (std::isnan(x.real()) && std::isnan(y.real())) continue;
    if (!near(x, y, rounded)) return false;
    ++compared;
    if (names.empty()) break;
  }
  return compared > 0;
}

}  // namespace apus
