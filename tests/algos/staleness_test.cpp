// SPDX-License-Identifier: Apache-2.0
// Answers that are made before it is their turn: the same as in their turn as long as the weights stay as they are, of
// a known age, kept by a checkpoint; and rewards teach through them.
#include "algos/rounds_ahead.h"
#include "tests/algos/learning.h"
#include "tests/golden.h"

namespace apus {
namespace {

using learning::Student;
using learning::Tasks;

const RegisterReward<learning::Reversed> reversed_ahead("test reversed ahead");

GrpoOptions ahead(int64_t rounds) {
  GrpoOptions o;
  o.reward_funcs = {"test reversed ahead"};
  o.max_staleness = rounds;
  return o;
}

TEST(Staleness, ChangesNothingWhileTheWeightsStay) {
  Json plain, stale;
  for (const int64_t rounds : {0, 2}) {
    Student student;
    GrpoOptions o = ahead(rounds);
    o.num_iterations = 2;
    student.reinforce(o, 6, /*lr=*/0);
    (rounds ? stale : plain) = student.history;
  }
  ASSERT_EQ(plain.size(), stale.size());
  const double oldest[] = {0, 0, 2, 2, 4, 4};  // updates
  for (size_t i = 0; i < plain.size(); ++i) {
    for (const char* name : {"loss", "grad_norm", "clip_ratio"})
      EXPECT_NEAR(plain[i].at(name).get<double>(), stale[i].at(name).get<double>(), 2e-5) << name << " " << i;
    if (i % 2) continue;
    for (const char* name : {"reward", "reward_std", "completions/mean_length"})
      EXPECT_EQ(plain[i].at(name), stale[i].at(name)) << name << " " << i;
    EXPECT_FALSE(plain[i].contains("staleness"));
    EXPECT_EQ(stale[i].at("staleness").get<double>(), oldest[i]) << i;
  }
  EXPECT_TRUE(plain[0].contains("rollout_mismatch/max"));
  EXPECT_FALSE(stale[0].contains("rollout_mismatch/max")) << "it would be of other weights";
}

// On a processor to the bit. Another device promises no order of its sums: those of the simulated NPU, which are
// libtorch's, depend on where memory lies.
TEST(Staleness, NoneIsThePlainRunToTheBit) {
  const double tolerance = golden::device_named() == "cpu" ? 0 : 1e-4;
  Json histories[2];
  for (const bool said : {false, true}) {
    Student student;
    GrpoOptions o = ahead(0);
    if (!said) o.max_staleness.reset();
    student.reinforce(o, 3);
    histories[said] = student.history;
  }
  for (size_t i = 0; i < 3; ++i)
    for (const char* name : {"loss", "grad_norm", "reward", "rollout_mismatch/max"})
      EXPECT_NEAR(histories[0][i].at(name).get<double>(), histories[1][i].at(name).get<double>(), tolerance)
          << name << " " << i;
}

TEST(Staleness, StillLearns) {
  Student student;
  student.pretrain(0.15);
  const double before = student.exact();
  student.reinforce(ahead(1), 80);
  EXPECT_GT(student.exact(), before + 0.2);
  double clipped = 0;
  for (const Json& line : student.history) clipped += line.value("clip_ratio", 0.0);
  EXPECT_GT(clipped, 0) << "the weights have moved since";
}

// Drawn in pieces, with a re-read of what was said before each: the same answers, while the weights stay.
TEST(Staleness, PiecesAreTheWholeWhileTheWeightsStay) {
  Json whole, pieces;
  for (const bool partial : {false, true}) {
    Student student;
    student.pretrain(0.15);  // some answers end early
    GrpoOptions o = ahead(2);
    o.partial_rollout = partial;
    student.reinforce(o, 4, /*lr=*/0);
    (partial ? pieces : whole) = student.history;
  }
  for (size_t i = 0; i < 4; ++i) {
    for (const char* name : {"reward", "reward_std", "completions/mean_length", "completions/clipped_ratio"})
      EXPECT_EQ(whole[i].at(name), pieces[i].at(name)) << name << " " << i;
    for (const char* name : {"loss", "grad_norm"})
      EXPECT_NEAR(whole[i].at(name).get<double>(), pieces[i].at(name).get<double>(), 2e-5) << name << " " << i;
    EXPECT_FALSE(whole[i].contains("completions/versions"));
  }
  EXPECT_EQ(pieces[0].at("completions/versions").get<double>(), 1) << "there was no round before";
  EXPECT_GT(pieces[1].at("completions/versions").get<double>(), 1);
  EXPECT_GT(pieces[2].at("completions/versions").get<double>(), pieces[1].at("completions/versions").get<double>());
  EXPECT_LE(pieces[3].at("completions/versions").get<double>(), 3);
}

TEST(Staleness, PiecesOfSeveralWeightsTeachToo) {
  Student student;
  student.pretrain(0.15);
  const double before = student.exact();
  GrpoOptions o = ahead(1);
  o.partial_rollout = true;
  student.reinforce(o, 80);
  EXPECT_GT(student.exact(), before + 0.2);
}

// Questions by number; each is answered by its number and the step that it is asked for.
struct NumberedRounds {
  explicit NumberedRounds(Student& s) : actors{.policy = *s.model} {
    actors.more_rows = [this]() -> std::optional<Samples> {
      if (number == last) return std::nullopt;
      Sample sample;
      sample.ids = {number++};
      return Samples{sample};
    };
  }
  AnswerRounds::Round next(RoundsAhead& rounds) {
    Samples questions;
    if (auto more = actors.more_rows()) questions = *more;
    return rounds.next(actors, questions, [](Actors& then, const Samples& asked) {
      AnswerRounds::Round round;
      for (const Sample& question : asked) {
        Answer& answer = round.answers.emplace_back();
        answer.prompt = question.ids, answer.ids = {static_cast<int32_t>(then.step)};
        answer.engine_logprobs = {-0.1f}, answer.rewards = {0.1, NAN}, answer.reward = 1.0 / 3;
        answer.turns = {{.end = 1, .reward = 0.5}}, answer.own = {1}, answer.text = "\xff";
        answer.beside = {{.prompt = {4}, .ids = {5}, .own = {1}, .logprobs = {-1}, .turns = {{1, 0.25}}}};
      }
      return round;
    });
  }
  Actors actors;
  int32_t number = 0, last = 6;
};

TEST(RoundsAhead, ComeInTheirTurn) {
  Student student;
  NumberedRounds data(student);
  RoundsAhead rounds({.ahead = 2, .questions = 1, .updates = 3});
  for (int32_t turn = 0; turn < 6; ++turn, data.actors.step += 3) {
    const AnswerRounds::Round round = data.next(rounds);
    ASSERT_EQ(round.answers.size(), 1u) << turn;
    EXPECT_EQ(round.answers[0].prompt, (std::vector<int32_t>{turn}));
    EXPECT_EQ(round.answers[0].ids, (std::vector<int32_t>{3 * turn})) << "asked as in its own turn";
    EXPECT_EQ(round.age, 3 * std::min(turn, 2));
  }
}

TEST(RoundsAhead, AreKeptByACheckpoint) {
  Student student;
  NumberedRounds data(student);
  RoundsAhead whole({.ahead = 2}), again({.ahead = 2});
  data.next(whole), ++data.actors.step;
  again.restore(parse_json(json_text(whole.state()), "a checkpoint", Fault::Data));
  const int32_t place = data.number;
  const AnswerRounds::Round first = data.next(whole);
  data.number = place;
  const AnswerRounds::Round second = data.next(again);
  const Answer &a = first.answers.at(0), &b = second.answers.at(0);
  EXPECT_EQ(a.prompt, (std::vector<int32_t>{1}));
  EXPECT_EQ(std::tie(a.prompt, a.ids, a.engine_logprobs, a.own, a.reward),
            std::tie(b.prompt, b.ids, b.engine_logprobs, b.own, b.reward));
  EXPECT_EQ(b.turns.at(0).end, 1u);
  ASSERT_EQ(b.beside.size(), 1u);
  EXPECT_EQ(std::tie(a.beside[0].prompt, a.beside[0].ids, a.beside[0].own, a.beside[0].logprobs),
            std::tie(b.beside[0].prompt, b.beside[0].ids, b.beside[0].own, b.beside[0].logprobs));
  EXPECT_EQ(b.beside[0].turns.at(0).reward, 0.25);
  EXPECT_EQ(b.rewards.at(0), 0.1);
  EXPECT_TRUE(std::isnan(b.rewards.at(1)));
  EXPECT_EQ(second.age, 1);

  EXPECT_EQ(b.versions, (std::vector<int64_t>{0})) << "of the weights that there were, whatever its turn is";

  RoundsAhead of_two({.ahead = 2, .rank = 1, .ranks = 2});
  EXPECT_THROW(of_two.restore(whole.state()), Error);
}

}  // namespace
}  // namespace apus
