// SPDX-License-Identifier: Apache-2.0
// What a person sees of a round of answers: numbers a step, answers in a file, and words where something looks wrong.
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "algos/grpo.h"
#include "algos/replay.h"
#include "algos/row_sharers.h"
#include "base/log.h"

namespace apus {
namespace {

constexpr int64_t kRoundsUntilWarning = 3;

Ratio noted_ratio(double sum, double count) { return {at::tensor(sum, at::kDouble), at::tensor(count, at::kDouble)}; }

std::string first_line(const std::string& text, size_t most) {
  std::string out = text.substr(0, most);
  std::replace(out.begin(), out.end(), '\n', ' ');
  return text.size() > most ? out + " ..." : out;
}

}  // namespace

void Grpo::note(const AnswerRounds::Round& round, const std::vector<Answer>& answers, const ScoredAnswers& whole,
                const RankSum& over_ranks, Actors& actors, bool training) {
  const auto n = static_cast<double>(answers.size());
  double reward = 0, deviation = 0, dead = 0, length = 0, turns = 0, conversations = 0, cut = 0, shortest = INFINITY,
         longest = 0;
  for (const Answer& answer : answers) {
    const auto tokens = static_cast<double>(answer.said());
    turns += static_cast<double>(answer.turns_taken());
    conversations += static_cast<double>(1 + answer.beside.size());
    reward += answer.reward, length += tokens, cut += answer.cut;
    shortest = std::min(shortest, tokens), longest = std::max(longest, tokens);
  }
  const auto groups = group_ranges(whole.groups);
  for (const auto& [first, end] : groups) {
    const GroupStatistics of_group = statistics_of(&whole.rewards[first], end - first);
    deviation += of_group.deviation, dead += of_group.deviation == 0;
  }
  const auto of_groups = static_cast<double>(groups.size());
  noted_["reward"] = noted_ratio(reward, n), noted_["reward_std"] = noted_ratio(deviation, of_groups);
  noted_["frac_reward_zero_std"] = noted_ratio(dead, of_groups);
  noted_["completions/mean_length"] = noted_ratio(length, n);
  if (!answers.empty()) {
    noted_["completions/min_length"] = noted_ratio(shortest, 1),
    noted_["completions/max_length"] = noted_ratio(longest, 1);
  }
  if (o_.brings_rows()) return;
  noted_["completions/clipped_ratio"] = noted_ratio(cut, n);
  noted_["completions/tokens_per_second"] =
      noted_ratio(static_cast<double>(round.tokens), std::max(1e-9, round.seconds));
  if (o_.several_turns()) noted_["num_turns"] = noted_ratio(turns, n);
  if (o_.of_agents()) noted_["num_conversations"] = noted_ratio(conversations, n);
  if (ahead_ && training) noted_["staleness"] = noted_ratio(static_cast<double>(round.age), 1);
  if (o_.partial_rollout && training) {
    double versions = 0;
    for (const Answer& answer : answers)
      versions += static_cast<double>(std::set(answer.versions.begin(), answer.versions.end()).size());
    noted_["completions/versions"] = noted_ratio(versions, n);
  }
  if (o_.dynamic_sample) noted_["resampled_groups"] = noted_ratio(static_cast<double>(round.resampled), of_groups);
  const std::vector<std::string>& names = rounds_->functions();
  for (size_t f = 0; f < names.size(); ++f) {
    double sum = 0, count = 0, squares = 0;
    for (const Answer& answer : answers)
      if (!std::isnan(answer.rewards[f])) sum += answer.rewards[f], ++count;
    const double all = over_ranks(count), mean = over_ranks(sum) / std::max(1.0, all);
    for (const Answer& answer : answers)
      if (!std::isnan(answer.rewards[f])) squares += (answer.rewards[f] - mean) * (answer.rewards[f] - mean);
    squares = over_ranks(squares);
    noted_["rewards/" + names[f] + "/mean"] = noted_ratio(sum, count);
    if (training) warn_of_no_opinion(names[f], all == 0 && !answers.empty());
    if (all > 1) noted_["rewards/" + names[f] + "/std"] = noted_ratio(std::sqrt(squares / (all - 1)), 1);
  }
  if (!training) return;
  warn(answers, whole);
  keep_completions(answers, actors);
}

// Three rounds alike are no accident any more.
void Grpo::warn(const std::vector<Answer>& answers, const ScoredAnswers& whole) {
  if (answers.empty()) return;
  const auto groups = group_ranges(whole.groups);
  const bool spread = o_.teacher_model || std::any_of(groups.begin(), groups.end(), [&](const auto& g) {
                        return statistics_of(&whole.rewards[g.first], g.second - g.first).deviation > 0;
                      });
  rounds_without_spread_ = spread ? 0 : rounds_without_spread_ + 1;
  if (rounds_without_spread_ != kRoundsUntilWarning) return;
  std::string said;
  for (size_t i = 0; i < std::min<size_t>(3, answers.size()); ++i)
    said += str("\n  ", answers[i].reward, ": ", first_line(answers[i].text, 100));
  log_warning(
      "in ", kRoundsUntilWarning,
      " rounds all answers to a question were worth the same, and nothing is learnt: are the questions too hard or "
      "too easy, or does the reward not see the answer (accuracy reads \\boxed{}, <answer>, \"the answer is\", or "
      "the number that stands last)? The last answers, and what they were worth (all: --log_completions true):",
      said);
}

// Null from a function, a model or an environment whose episodes fail: it counts nothing.
void Grpo::warn_of_no_opinion(const std::string& name, bool none) {
  int64_t& rounds = rounds_without_opinion_[name];
  rounds = none ? rounds + 1 : 0;
  if (rounds == kRoundsUntilWarning && rank_ == 0)
    log_warning(
        "in ", kRoundsUntilWarning, " rounds ", name,
        " had no opinion on any answer (null), so it teaches nothing: does it find the columns that it asks for, or do "
        "its episodes fail?");
}

void Grpo::keep_completions(const std::vector<Answer>& answers, Actors& actors) const {
  const bool speaks = RowSharers(actors.sharers).first();  // of ranks with the same answers
  if (o_.dump_rollouts && speaks) {
    const std::filesystem::path file = ranks_ > 1 ? str(*o_.dump_rollouts, ".", rank_) : *o_.dump_rollouts;
    append_rollouts(file, answers, str(actors.step, ".", rank_ / sharers_));
  }
  if (!o_.log_completions) return;
  write_completions(
      speaks ? completion_lines(answers, rounds_->functions(), *tokenizer_, actors.step + 1) : std::string(),
      output_dir_, actors.data_ranks);
  if (rank_ != 0 || !speaks || answers.empty()) return;
  const auto best = std::max_element(answers.begin(), answers.end(),
                                     [](const Answer& a, const Answer& b) { return a.reward < b.reward; });
  log_info("step ", actors.step + 1, ", reward ", best->reward, ": ", first_line(best->text, 120));
}

}  // namespace apus
