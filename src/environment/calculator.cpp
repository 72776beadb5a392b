// SPDX-License-Identifier: Apache-2.0
// A calculator that the model may call: calculator(expression). A turn without a call is the answer, worth 1 when it is
// the row's column "solution".
#include <cmath>

#include "base/error.h"
#include "environment/called_tools.h"
#include "environment/environment.h"
#include "reward/math_answer.h"
#include "reward/math_expression.h"

namespace apus {
namespace {

constexpr size_t kMostCalls = 16;  // of a turn

std::string shown_value(double value) {
  if (!std::isfinite(value)) return "error: the expression has no value";
  if (value == std::floor(value) && std::abs(value) < 1e15) return std::to_string(static_cast<int64_t>(value));
  char text[40];
  std::snprintf(text, sizeof text, "%.12g", value);
  return text;
}

class Calculator final : public Episode {
 public:
  Calculator(const Json& row, uint64_t) { solution_ = solution_of(row, "calculator"); }
  static Json tools() {
    return Json::parse(R"([{"type": "function", "function": {"name": "calculator",
      "description": "the value of an expression, e.g. (3 + 4) * 12",
      "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}])");
  }
  EpisodeReply step(const EpisodeTurn& turn) override {
    const std::vector<ToolCall> calls = called_tools(turn.text, tools());
    if (calls.empty()) return {.reward = same_math_answer(turn.text, solution_) ? 1.0 : 0.0, .done = true};
    return replies_to(calls, kMostCalls, tools(), result_of);
  }

 private:
  static std::string result_of(const Json& given) {
    const std::string text = given["expression"].get<std::string>();
    const auto expression = MathExpression::parse(text);
    if (!expression || !expression->variables().empty()) return "error: this is no expression of numbers";
    const std::complex<double> value = expression->value({});
    return shown_value(value.imag() == 0 ? value.real() : NAN);
  }
  std::string solution_;
};

const RegisterEnvironment<Calculator> calculator("calculator");

}  // namespace
}  // namespace apus
