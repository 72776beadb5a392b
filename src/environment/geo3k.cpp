// SPDX-License-Identifier: Apache-2.0
// verl's tool for Geometry3K: calc_geo3k_reward(answer) says what an answer would be worth, so that the model may think
// again. A call that is no better than the best before takes 0.05 off. A turn without a call is the answer, worth 1
// when it is the row's column "solution".
#include <algorithm>

#include "base/error.h"
#include "environment/called_tools.h"
#include "environment/environment.h"
#include "reward/math_answer.h"

namespace apus {
namespace {

constexpr size_t kMostAsked = 4;  // of a turn
constexpr double kNoBetter = -0.05;

class Geo3k final : public Episode {
 public:
  Geo3k(const Json& row, uint64_t) { solution_ = solution_of(row, "geo3k"); }
  static Json tools() {
    return Json::parse(R"([{"type": "function", "function": {"name": "calc_geo3k_reward",
      "description": "what an answer would be worth: 1.0 when it is right, else 0.0",
      "parameters": {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}}}])");
  }
  EpisodeReply step(const EpisodeTurn& turn) override {
    const std::vector<ToolCall> calls = called_tools(turn.text, tools());
    if (calls.empty()) return {.reward = worth(turn.text), .done = true};
    double taken_off = 0;
    EpisodeReply reply = replies_to(calls, kMostAsked, tools(), [&](const Json& given) {
      const std::string answer = given["answer"].get<std::string>();
      const double reward = worth(answer);
      if (reward <= best_) taken_off += kNoBetter;
      best_ = std::max(best_, reward);
      return str("Current parsed answer='", answer, "' reward=", reward > 0 ? "1.0" : "0.0");
    });
    reply.reward = taken_off;
    return reply;
  }

 private:
  double worth(const std::string& answer) const { return same_math_answer(answer, solution_) ? 1 : 0; }
  std::string solution_;
  double best_ = 0;
};

const RegisterEnvironment<Geo3k> geo3k("geo3k");

}  // namespace
}  // namespace apus
