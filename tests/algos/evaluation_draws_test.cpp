// SPDX-License-Identifier: Apache-2.0
// What an evaluation draws: each question has random numbers of its own, by its place and the step, whatever it is
// asked beside. Evaluations of weights that stay vary as independent draws do.
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <set>

#include "tests/algos/learning.h"

namespace apus {
namespace {

using learning::Student;

// Whether the first token is even: about every second time.
class FirstIsEven final : public SingleReward {
 public:
  explicit FirstIsEven(const RewardOptions&) {}
  double one(const RewardInput& answer) const override { return answer.tokens.front() % 2 == 0; }
};
const RegisterReward<FirstIsEven> even("test first is even");

struct Evaluations {
  Evaluations() : rollout(*student.model, student.options(), {.max_sequences = 256, .max_model_len = 64}) {}
  // The answers to as many questions, all the same, so many at once.
  std::vector<Answer> answers(int64_t step, size_t questions, size_t at_once) {
    const at::NoGradGuard no_grad;
    RoundOptions o;
    o.rewards.reward_funcs = {"test first is even"}, o.rewards.max_completion_length = 2;
    const LoopOptions loop;
    AnswerRounds rounds(o, student.setting(loop));
    Sample question;
    question.ids = {learning::kBegin, learning::kMark}, question.trained = {0, 0}, question.row = "{}";
    Actors actors{.policy = *student.model, .rollout = &rollout};
    actors.step = step;
    std::vector<Answer> out;
    for (size_t i = 0; i < questions; i += at_once)
      for (Answer& answer : rounds.ask(actors, Samples(std::min(at_once, questions - i), question), false).answers)
        out.push_back(std::move(answer));
    return out;
  }
  Student student;
  Rollout rollout;
};

double mean_reward(const std::vector<Answer>& answers) {
  double sum = 0;
  for (const Answer& answer : answers) sum += answer.reward;
  return sum / static_cast<double>(answers.size());
}

TEST(EvaluationDraws, AreOfTheQuestionsPlace) {
  Evaluations e;
  const std::vector<Answer> alone = e.answers(3, 12, 1), together = e.answers(3, 12, 8);
  std::set<std::vector<int32_t>> said;
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(alone[i].ids, together[i].ids) << "beside others " << i;
    said.insert(alone[i].ids);
  }
  EXPECT_GT(said.size(), 6u) << "equal questions are answered anew at each place";
  EXPECT_NE(e.answers(4, 1, 1)[0].ids, alone[0].ids) << "and at each step";
}

TEST(EvaluationDraws, VaryAsIndependentOnes) {
  Evaluations e;
  std::vector<double> means;
  double sum = 0, squares = 0;
  for (int64_t step = 0; step < 30; ++step) means.push_back(mean_reward(e.answers(step, 200, 64))), sum += means.back();
  const double p = sum / 30;
  for (const double mean : means) squares += (mean - p) * (mean - p);
  const double expected = std::sqrt(p * (1 - p) / 200), got = std::sqrt(squares / 29);
  EXPECT_GT(p, 0.1);
  EXPECT_LT(p, 0.9);
  EXPECT_GT(got, 0.6 * expected);
  EXPECT_LT(got, 1.5 * expected) << "one draw for all questions gives " << std::sqrt(p * (1 - p));
}

}  // namespace
}  // namespace apus
