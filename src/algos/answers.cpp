// SPDX-License-Identifier: Apache-2.0
#include "algos/answers.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "train/rollout.h"

namespace apus {

std::vector<std::pair<size_t, size_t>> groups_of(const std::vector<Answer>& answers) {
  std::vector<std::pair<size_t, size_t>> out;
  for (size_t i = 0; i < answers.size(); ++i)
    if (i == 0 || answers[i].group != answers[i - 1].group)
      out.emplace_back(i, i + 1);
    else
      out.back().second = i + 1;
  return out;
}

bool has_spread(const std::vector<Answer>& answers, size_t first, size_t end) {
  return std::any_of(answers.begin() + static_cast<long>(first), answers.begin() + static_cast<long>(end),
                     [&](const Answer& a) { return a.reward != answers[first].reward; });
}

AnswerRounds::AnswerRounds(const GrpoOptions& options, const RunSetting& setting)
    : o_(options),
      tokenizer_(setting.tokenizer),
      sampling_(setting.sampling),
      seed_(setting.seed),
      rank_(setting.rank),
      ranks_(setting.ranks),
      rewards_(options) {
  require(
      sampling_.temperature > 0, Fault::Usage,
      "--temperature 0 gives the same answer to a question every time, and there is nothing to compare: give 0.9 or 1");
  sampling_.max_new_tokens = o_.max_completion_length;
  sampling_.top_logprobs = 0, sampling_.tempered_logprobs = true;
}

std::vector<Answer> AnswerRounds::rolled_out(Actors& actors, const Samples& questions, int64_t each, uint64_t seed,
                                             Round& round) {
  std::vector<std::vector<int32_t>> prompts;
  for (const Sample& question : questions) prompts.insert(prompts.end(), static_cast<size_t>(each), question.ids);
  Sampling sampling = sampling_;
  sampling.seed = seed;
  const Stopwatch watch;
  const std::vector<FinishedAnswer> finished = actors.rollout->answers(prompts, sampling);
  round.seconds += watch.seconds();
  std::vector<Answer> out(finished.size());
  for (size_t i = 0; i < finished.size(); ++i) {
    const FinishedAnswer& from = finished[i];
    require(from.finish == Finish::Stop || from.finish == Finish::Length, Fault::Device,
            "rolling out answers: ", from.error.empty() ? "an answer was not finished" : from.error);
    Answer& answer = out[i];
    answer.prompt = prompts[i], answer.ids = from.ids(), answer.cut = from.finish == Finish::Length;
    for (const TokenOut& token : from.tokens) answer.engine_logprobs.push_back(token.logprob);
    std::vector<int32_t> said = answer.ids;
    if (!answer.cut && !said.empty()) said.pop_back();  // the token that ends the turn
    answer.text = tokenizer_->decode(said, true);
    answer.group = static_cast<int64_t>(i) / each;
    round.tokens += static_cast<int64_t>(answer.ids.size());
  }
  return out;
}

void AnswerRounds::reward(std::vector<Answer>& answers, const Samples& questions, size_t of_each) {
  std::vector<Json> rows;
  for (const Sample& question : questions) rows.push_back(parse_json(question.row, "a question's columns", Fault::Bug));
  std::vector<RewardInput> inputs;
  for (size_t i = 0; i < answers.size(); ++i)
    inputs.push_back(
        {.completion = answers[i].text, .tokens = answers[i].ids, .cut = answers[i].cut, .row = &rows[i / of_each]});
  const Rewards::Scores scores = rewards_.score(inputs);
  for (size_t i = 0; i < answers.size(); ++i) {
    answers[i].reward = scores.totals[i];
    for (const auto& function : scores.functions) answers[i].rewards.push_back(function[i]);
  }
}

void AnswerRounds::add_greedy_rewards(Actors& actors, const Samples& questions, std::vector<Answer>& answers,
                                      Round& round) {
  const double temperature = std::exchange(sampling_.temperature, 0);
  std::vector<Answer> greedy = rolled_out(actors, questions, 1, seed_, round);
  sampling_.temperature = temperature;
  reward(greedy, questions, 1);
  for (Answer& answer : answers) answer.greedy_reward = greedy[static_cast<size_t>(answer.group)].reward;
}

AnswerRounds::Round AnswerRounds::ask(Actors& actors, const Samples& questions, bool training) {
  require(actors.rollout, Fault::Bug, "there is no engine to roll answers out with");
  Round round;
  const int64_t each = o_.generations(!training);
  // A function of the step, so that a resumed run asks in the same way.
  const uint64_t place = static_cast<uint64_t>(actors.step * ranks_ + rank_);
  round.answers = rolled_out(actors, questions, each, mix(seed_, stream_named("rollout"), place), round);
  reward(round.answers, questions, static_cast<size_t>(each));
  if (o_.advantage_estimator == "remax") add_greedy_rewards(actors, questions, round.answers, round);
  if (training && o_.dynamic_sample) resample(actors, round, each);
  return round;
}

// Groups without spread make room for answers to further questions, one for one.
void AnswerRounds::resample(Actors& actors, Round& round, int64_t each) {
  for (int64_t attempt = 1; attempt <= o_.max_resample_times && actors.more_rows; ++attempt) {
    std::vector<size_t> dead;  // the first answer of each
    for (const auto& [first, end] : groups_of(round.answers))
      if (!has_spread(round.answers, first, end)) dead.push_back(first);
    Samples further;
    while (further.size() < dead.size()) {
      const auto more = actors.more_rows();
      if (!more) break;
      further.insert(further.end(), more->begin(), more->end());
    }
    if (further.empty()) return;
    const uint64_t place =
        static_cast<uint64_t>((actors.step * (o_.max_resample_times + 1) + attempt) * ranks_ + rank_);
    std::vector<Answer> fresh =
        rolled_out(actors, further, each, mix(seed_, stream_named("rollout again"), place), round);
    reward(fresh, further, static_cast<size_t>(each));
    if (o_.advantage_estimator == "remax") add_greedy_rewards(actors, further, fresh, round);
    size_t next = 0;
    for (const auto& [first, end] : groups_of(fresh)) {
      if (!has_spread(fresh, first, end) || next == dead.size()) continue;
      const size_t at = dead[next++];
      const int64_t group = round.answers[at].group;
      for (size_t i = first; i < end; ++i) {
        fresh[i].group = group;
        round.answers[at + i - first] = std::move(fresh[i]);
      }
      ++round.resampled;
    }
    if (next == dead.size()) return;
  }
}

}  // namespace apus
