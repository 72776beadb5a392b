// SPDX-License-Identifier: Apache-2.0
// A question of mathematics with a second try: a wrong result is said to be wrong, once. Worth 1 when right at first,
// half when right then. The right result is the row's column "solution".
#include "base/error.h"
#include "environment/environment.h"
#include "reward/math_answer.h"

namespace apus {
namespace {

class SecondTry final : public Episode {
 public:
  SecondTry(const Json& row, uint64_t) { solution_ = solution_of(row, "second_try"); }
  static Json tools() { return nullptr; }
  EpisodeReply step(const EpisodeTurn& turn) override {
    if (same_math_answer(turn.text, solution_)) return {.reward = turn.turn == 0 ? 1 : 0.5, .done = true};
    if (turn.turn > 0) return {.done = true};
    return {.messages = user_says("That is not right. Look for the mistake, and answer again.")};
  }

 private:
  std::string solution_;
};

const RegisterEnvironment<SecondTry> second_try("second_try");

}  // namespace
}  // namespace apus
