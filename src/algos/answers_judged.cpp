// SPDX-License-Identifier: Apache-2.0
// What answers are worth: functions and programs, which judge them as they come, and reward models.
#include <cmath>
#include <future>

#include "algos/answers.h"
#include "algos/row_sharers.h"
#include "base/error.h"
#include "base/random.h"
#include "train/idle_pass.h"
#include "train/rollout.h"

namespace apus {

// What a reward model says of each answer behind its question.
std::vector<double> AnswerRounds::judged_by(const Actors& actors, size_t reward_model,
                                            const std::vector<Answer>& answers) const {
  const Model& model = *actors.others.at("reward").at(reward_model);
  const std::string& name = names_[rewards_.names().size() + reward_model];
  std::vector<double> out;
  const auto at_once = static_cast<size_t>(o_.scored_at_once);
  const size_t passes = passes_in_step(model, (answers.size() + at_once - 1) / at_once, actors.data_ranks);
  for (size_t pass = 0, begin = 0; pass < passes; ++pass, begin += at_once) {
    if (begin >= answers.size()) {
      Scorer(model).scores(idle_batch().to(device_));
      continue;
    }
    Samples samples;
    for (size_t i = begin; i < std::min(answers.size(), begin + at_once); ++i) {
      Sample sample = sample_of(answers[i], false, false);
      if (!answers[i].cut && behind_turn_) {
        sample.ids.insert(sample.ids.end(), behind_turn_->begin(), behind_turn_->end());
        sample.trained.resize(sample.ids.size(), 0);
      }
      samples.push_back(std::move(sample));
    }
    const at::Tensor score_S = Scorer(model).scores(collate(samples).to(device_)).select(1, 0).to(at::kCPU);
    for (int64_t s = 0; s < score_S.numel(); ++s) {
      out.push_back(score_S[s].item<double>());
      require(std::isfinite(out.back()), Fault::Model, "the reward model ", name, " gives ", out.back(),
              " for an answer: no number to learn from. Is its checkpoint whole? --torch_dtype float32 may help");
    }
  }
  return out;
}

namespace {
std::vector<Json> rows_of(const Samples& questions) {
  std::vector<Json> rows;
  for (const Sample& question : questions) rows.push_back(parse_json(question.row, "a question's columns", Fault::Bug));
  return rows;
}
}  // namespace

RewardInput AnswerRounds::reward_input(const Answer& answer, const Actors& actors,
                                       const std::vector<Json>& rows) const {
  return {.completion = answer.text,
          .tokens = answer.ids,
          .cut = answer.cut,
          .row = &rows[static_cast<size_t>(answer.group)],
          .trajectory = answer.turns.empty() ? nullptr : &answer.trajectory,
          .group = answer.group,
          .step = actors.step};
}

// From here on functions and programs judge answers of one turn as they come. Ranks that have the same answers leave
// it: one of them judges all.
void AnswerRounds::begin_judging(const Actors& actors, const Samples& questions, const Part& part) {
  if (environment_ || actors.sharers || rewards_.names().empty()) return;
  early_.rows = rows_of(questions);
  early_.judging = std::make_unique<RoundJudging>(rewards_, part.end - part.first);
}

// Functions and programs judge while the models do, of which ranks may hold parts. Rewards that are asked twice may
// differ: of ranks that have the same answers one asks.
void AnswerRounds::reward(Actors& actors, std::vector<Answer>& answers, const Samples& questions) {
  Early early = std::exchange(early_, {});
  if (!early.judging) early.rows = rows_of(questions);
  std::vector<RewardInput> inputs;
  for (const Answer& answer : answers) inputs.push_back(reward_input(answer, actors, early.rows));
  const RowSharers sharers(actors.sharers);
  std::future<Rewards::Scores> functions;
  if (sharers.first())
    functions = std::async(std::launch::async,
                           [&] { return early.judging ? early.judging->finish(inputs) : rewards_.score(inputs); });
  std::vector<std::vector<double>> judged;
  const size_t first = rewards_.names().size(), models = o_.rewards.reward_model.size();
  for (size_t m = 0; m < models; ++m) judged.push_back(judged_by(actors, m, answers));
  if (!sharers.first()) return sharers.agree_on_rewards(answers);
  const Rewards::Scores scores = functions.get();
  for (size_t i = 0; i < answers.size(); ++i) {
    const std::vector<double> of_environment = std::exchange(answers[i].rewards, {});
    answers[i].reward = scores.totals[i];
    for (const auto& function : scores.functions) answers[i].rewards.push_back(function[i]);
    for (size_t m = 0; m < judged.size(); ++m) {
      answers[i].reward += rewards_.weights()[first + m] * judged[m][i];
      answers[i].rewards.push_back(judged[m][i]);
    }
    for (const double reward : of_environment) {
      if (!std::isnan(reward)) answers[i].reward += reward;
      answers[i].rewards.push_back(reward);
    }
  }
  sharers.agree_on_rewards(answers);
}

void AnswerRounds::add_greedy_rewards(Actors& actors, const Samples& questions, std::vector<Answer>& answers,
                                      Round& round) {
  const double temperature = std::exchange(sampling_.temperature, 0);
  std::vector<Answer> greedy = rolled_out(actors, questions, all_of(questions, 1), seed_, round);
  sampling_.temperature = temperature;
  reward(actors, greedy, questions);
  for (Answer& answer : answers) answer.greedy_reward = greedy[static_cast<size_t>(answer.group)].reward;
}

void AnswerRounds::judge(Actors& actors, Round& round, const Samples& questions, bool training) {
  reward(actors, round.answers, questions);
  if (o_.asks_greedy) add_greedy_rewards(actors, questions, round.answers, round);
  if (training && o_.resamples) resample(actors, round, o_.each);
}

}  // namespace apus
