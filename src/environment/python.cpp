// SPDX-License-Identifier: Apache-2.0
// Python that the model may call: python(code), run where a calculation can do no harm (reward/run_code.h); what it
// prints is the reply. A turn without a call is the answer: a program, worth 1 when the row's column "tests" comes to
// its end behind it; or, without tests, a result that is compared with "solution".
#include "base/error.h"
#include "environment/called_tools.h"
#include "environment/environment.h"
#include "reward/math_answer.h"
#include "reward/run_code.h"

namespace apus {
namespace {

constexpr size_t kMostPrograms = 4;    // of a turn
constexpr size_t kMostPrinted = 4000;  // bytes of what one prints
constexpr CodeLimits kPythonLimits{.seconds = 5, .memory = int64_t{1} << 30};

class Python final : public Episode {
 public:
  Python(const Json& row, uint64_t) {
    const Json *tests = column(row, {"tests", "test"}), *solution = column(row, {"solution", "answer", "ground_truth"});
    require(
        tests || solution, Fault::Data,
        "python runs the column 'tests' behind the answer, or compares it with the column 'solution', and the row has "
        "neither: ",
        json_text(row).substr(0, 200));
    if (tests) tests_ = tests->is_array() ? lines_of(*tests) : column_text(*tests);
    if (solution) solution_ = column_text(*solution);
    if (const Json* name = column(row, {"entry_point"})) name_ = column_text(*name);
  }
  static Json tools() {
    return Json::parse(R"([{"type": "function", "function": {"name": "python",
      "description": "runs a program in Python 3, which can compute and print, and gives what it printed",
      "parameters": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}}}])");
  }
  EpisodeReply step(const EpisodeTurn& turn) override {
    const std::vector<ToolCall> calls = called_tools(turn.text, tools());
    if (calls.empty()) return {.reward = worth(turn.text) ? 1.0 : 0.0, .done = true};
    return replies_to(calls, kMostPrograms, tools(), result_of);
  }

 private:
  static std::string lines_of(const Json& tests) {
    std::string all;
    for (const Json& each : tests) all += column_text(each) + "\n";
    return all;
  }
  bool worth(const std::string& answer) const {
    if (tests_.empty()) return same_math_answer(answer, solution_);
    return run_python(code_in(answer, name_) + "\n" + tests_ + "\n", kPythonLimits).passed;
  }
  static std::string result_of(const Json& given) {
    const std::string code = given["code"].get<std::string>();
    const CodeRun run = run_python(code_in(code, ""), kPythonLimits);
    std::string text = run.printed.substr(0, kMostPrinted);
    if (run.printed.size() > kMostPrinted) text += "...";
    if (!run.passed) text += str(text.empty() ? "" : "\n", "error: ", run.why);
    return text.empty() ? "nothing was printed" : text;
  }

  std::string tests_, solution_, name_;
};

const RegisterEnvironment<Python> python("python");

}  // namespace
}  // namespace apus
