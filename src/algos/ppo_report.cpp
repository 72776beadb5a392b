// SPDX-License-Identifier: Apache-2.0
// What a person sees of a round of PPO, under TRL's names.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>

#include "algos/policy/mismatch.h"
#include "algos/ppo.h"
#include "algos/replay.h"
#include "base/log.h"

namespace apus {
namespace {

Ratio shown(double sum, double count) { return {at::tensor(sum, at::kDouble), at::tensor(count, at::kDouble)}; }

double sum_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value;
  return sum;
}

}  // namespace

void Ppo::note(const AnswerRounds::Round& round, const Traces& traces, const RankSum& over_ranks) {
  const auto n = static_cast<double>(round.answers.size());
  double score = 0, divergence = 0, tokens = 0, ended = 0;
  for (const Answer& answer : round.answers)
    score += shown_reward(answer), tokens += static_cast<double>(answer.said()), ended += !answer.cut;
  for (const auto& of_tokens : traces.divergences) divergence += sum_of(of_tokens);
  const double penalty = kl_coef_.value() * divergence;
  noted_["reward"] = noted_["objective/scores"] = shown(score, n);
  noted_["objective/kl"] = noted_["kl"] = shown(divergence, n);
  noted_["objective/non_score_reward"] = shown(-penalty, n);
  noted_["objective/rlhf_reward"] = shown(score - penalty, n);
  noted_["objective/entropy"] = shown(traces.entropy, n);
  noted_["policy/entropy_avg"] = shown(traces.entropy, tokens);
  noted_["objective/kl_coef"] = shown(kl_coef_.value(), 1);
  noted_["val/num_eos_tokens"] = shown(ended, 1);
  noted_["completions/mean_length"] = shown(tokens, n);
  const double answers = over_ranks(n);
  const double mean_divergence = over_ranks(divergence) / std::max(1.0, answers);
  if (at::GradMode::is_enabled() && !warms_up_) kl_coef_.see(mean_divergence, answers);
  if (!o_.brings_rows()) note_rollout(round);
}

void Ppo::note_mismatch(const std::vector<Answer>& answers, const Traces& traces) {
  double sum = 0, count = 0, worst = 0;
  for (size_t i = 0; i < answers.size(); ++i)
    for (size_t t = 0, said = 0; t < answers[i].ids.size(); ++t) {
      if (!answers[i].says(t)) continue;
      const double apart = std::fabs(traces.old[i][said++] - static_cast<double>(answers[i].engine_logprobs[t]));
      sum += apart, ++count, worst = std::max(worst, apart);
    }
  noted_["rollout_mismatch/mean"] = shown(sum, std::max(1.0, count));
  noted_["rollout_mismatch/max"] = shown(worst, 1);
  if (o_.deterministic_rollout) require_agreement(worst);
}

void Ppo::note_rollout(const AnswerRounds::Round& round) {
  const auto n = static_cast<double>(round.answers.size());
  const auto cut = std::count_if(round.answers.begin(), round.answers.end(), [](const Answer& a) { return a.cut; });
  noted_["completions/clipped_ratio"] = shown(static_cast<double>(cut), n);
  noted_["completions/tokens_per_second"] = shown(static_cast<double>(round.tokens), std::max(1e-9, round.seconds));
  const std::vector<std::string>& names = rounds_->functions();
  for (size_t f = 0; f < names.size(); ++f) {
    double sum = 0, count = 0;
    for (const Answer& answer : round.answers)
      if (!std::isnan(answer.rewards[f])) sum += answer.rewards[f], ++count;
    noted_["rewards/" + names[f] + "/mean"] = shown(sum, count);
  }
}

// Of ranks with the same answers one `speaks`.
void Ppo::keep(const std::vector<Answer>& answers, Actors& actors, bool speaks) const {
  if (o_.dump_rollouts && speaks)
    append_rollouts(ranks_ > 1 ? str(*o_.dump_rollouts, ".", rank_) : *o_.dump_rollouts, answers,
                    str(actors.step, ".", rank_));
  if (!o_.log_completions || o_.brings_rows()) return;
  write_completions(
      speaks ? completion_lines(answers, rounds_->functions(), *tokenizer_, actors.step + 1) : std::string(),
      output_dir_, actors.data_ranks);
}

}  // namespace apus
