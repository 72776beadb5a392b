// SPDX-License-Identifier: Apache-2.0
// Servers draw the next round while the trainer works: the rounds are those that are drawn one after the other, by the
// weights of their time; what goes wrong there is told, and a checkpoint holds what came.
#include <atomic>
#include <chrono>

#include "algos/rounds_ahead.h"
#include "engine/answer/answer_wire.h"
#include "tests/algos/learning.h"
#include "tests/json_server.h"

namespace apus {
namespace {

using learning::Student;
using std::chrono::milliseconds;

class FirstIsBelow50 final : public SingleReward {
 public:
  explicit FirstIsBelow50(const RewardOptions&) {}
  double one(const RewardInput& answer) const override { return answer.tokens.front() < 50; }
};
const RegisterReward<FirstIsBelow50> below("test first is below 50");

// Says a token of the seed, and remembers which weights it was asked for.
struct SeedServer {
  SeedServer()
      : server([this](const Json& body) -> std::pair<int, std::string> {
          if (!body.is_object() || !body.contains("prompts")) return {200, body.is_object() ? body.dump() : "{}"};
          if (broken) return {400, "it is broken"};
          std::this_thread::sleep_for(milliseconds(200));
          version = body["version"].get<int64_t>(), ++orders;
          std::vector<FinishedAnswer> answers(body["prompts"].size());
          for (size_t i = 0; i < answers.size(); ++i) {
            const uint64_t seed = std::stoull(body["seeds"][i].get<std::string>());  // 64 bits, as text
            answers[i].finish = Finish::Stop;
            answers[i].tokens = {
                {.id = static_cast<int32_t>(mix(seed, 1, 0) % 100), .logprob = -1, .weights = version.load()}};
          }
          return {200, json_text(to_wire(answers))};
        }) {}
  std::atomic<bool> broken{false};
  std::atomic<int64_t> version{0}, orders{0};
  test::JsonServer server;
};

struct Trainee {
  Trainee() : rollout(*student.model, student.options(), {}, [](const std::filesystem::path&) {}) {
    RoundOptions o;
    o.rewards.reward_funcs = {"test first is below 50"}, o.rewards.max_completion_length = 2, o.each = 4;
    const std::string url = server.server.url();
    o.servers.vllm_mode = "server", o.servers.vllm_server_base_url = {url.substr(0, url.size() - 4)};
    o.servers.vllm_server_timeout = 1;
    const LoopOptions loop;
    rounds = std::make_unique<AnswerRounds>(o, student.setting(loop));
    actors.more_rows = [this] { return std::optional(question()); };
  }
  Samples question() {
    Sample sample;
    sample.ids = {learning::kBegin, 10 + number++}, sample.trained = {0, 0}, sample.row = "{}";
    return {sample};
  }
  AnswerRounds::Round next(RoundsAhead& ahead, bool beside) {
    if (beside) return ahead.next_beside(actors, question(), *rounds);
    return ahead.next(
        actors, question(), [&](Actors& then, const Samples& asked) { return rounds->ask(then, asked, true); },
        rounds.get());
  }
  void learn() { ++actors.step, rollout.weights_changed(); }

  SeedServer server;
  Student student;
  Rollout rollout;
  Actors actors{.policy = *student.model, .rollout = &rollout};
  std::unique_ptr<AnswerRounds> rounds;
  int32_t number = 0;
};

TEST(RoundsBeside, AreDrawnWhileTheTrainerWorks) {
  Trainee one, two;
  RoundsAhead beside({.ahead = 1}), behind({.ahead = 1});
  for (int64_t turn = 0; turn < 4; ++turn) {
    const AnswerRounds::Round got = one.next(beside, true);
    const int64_t before = one.server.orders;  // the round ahead has been asked for, and takes a while
    const AnswerRounds::Round wanted = two.next(behind, false);
    ASSERT_EQ(got.answers.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(got.answers[i].ids, wanted.answers[i].ids) << turn;
      EXPECT_EQ(got.answers[i].reward, wanted.answers[i].reward) << turn;
      EXPECT_EQ(got.answers[i].versions, wanted.answers[i].versions) << turn;
    }
    EXPECT_EQ(got.age, wanted.age);
    one.learn(), two.learn();
    for (int i = 0; i < 100 && one.server.orders == before; ++i) std::this_thread::sleep_for(milliseconds(20));
    EXPECT_GT(one.server.orders, before) << "answers come while nothing is asked";
    EXPECT_EQ(one.server.version, turn == 0 ? 1 : turn + 1) << "by the weights that there were when it was asked";
  }
}

TEST(RoundsBeside, AreInACheckpoint) {
  Trainee one;
  RoundsAhead whole({.ahead = 1}), again({.ahead = 1});
  one.next(whole, true), one.learn();
  whole.settle(one.actors);
  again.restore(parse_json(json_text(whole.state()), "a checkpoint", Fault::Data));
  Trainee two;
  two.number = one.number, two.actors.step = one.actors.step;
  const AnswerRounds::Round first = one.next(whole, true), second = two.next(again, false);
  ASSERT_EQ(first.answers.size(), second.answers.size());
  for (size_t i = 0; i < first.answers.size(); ++i) {
    EXPECT_EQ(first.answers[i].ids, second.answers[i].ids);
    EXPECT_EQ(first.answers[i].rewards, second.answers[i].rewards) << "they are judged at their turn";
  }
}

TEST(RoundsBeside, TellWhatWentWrong) {
  Trainee one;
  RoundsAhead ahead({.ahead = 1});
  one.next(ahead, true);
  ahead.settle(one.actors);
  one.server.broken = true;
  one.learn();
  one.next(ahead, true);  // its own round came before
  EXPECT_THROW(ahead.settle(one.actors), Error);
}

}  // namespace
}  // namespace apus
