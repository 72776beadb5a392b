// SPDX-License-Identifier: Apache-2.0
// A round of answers on its way into micro-batches: how it is divided, what the models say of it, what it is worth.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <iterator>

#include "algos/grpo.h"
#include "algos/grpo_columns.h"
#include "algos/replay.h"
#include "algos/row_sharers.h"
#include "base/error.h"
#include "base/random.h"
#include "train/shared_prefix.h"

namespace apus {

AnswerRounds::Round Grpo::round_of(Actors& actors, std::vector<Samples> micro_batches, bool training) {
  if (!ahead_ || !training) return answers_to(std::move(micro_batches), replayed_, rounds_.get(), actors, training);
  Samples questions;
  for (Samples& samples : micro_batches)
    for (Sample& sample : samples) questions.push_back(std::move(sample));
  if (o_.partial_rollout) return ahead_->next_in_pieces(actors, std::move(questions), *rounds_);
  if (o_.draws_beside() && !RowSharers(actors.sharers).several())
    return ahead_->next_beside(actors, std::move(questions), *rounds_);
  return ahead_->next(
      actors, std::move(questions), [&](Actors& then, const Samples& asked) { return rounds_->ask(then, asked, true); },
      rounds_.get());
}

// Whether ratios are to the policy that answered, as the engine saw it: that of answers from a file, or of older
// weights. A correction takes the two parts of such a ratio apart: the policy before the round's updates is between.
bool Grpo::learns_from_sampler() const { return o_.brings_rows() || (ahead_ && correction_ == Correction::None); }

// `several`: some answer of the round has several conversations.
Sample Grpo::learnt_sample(const Conversations& all, size_t conversation, bool several, bool joins) const {
  const Answer& one = all.each[conversation];
  Sample sample = sample_of(one, !(o_.overlong_filter && one.cut), joins);
  if (!one.engine_logprobs.empty())
    sample.token_columns[grpo_column::kEngine] = answer_column(one, one.engine_logprobs);
  if (several) sample.columns[grpo_column::kShare] = all.share[conversation];
  replay_.add_experts(sample, one);
  return sample;
}

// Several updates see the answers in another order, so that none of them is of a few questions alone.
std::vector<std::vector<Grpo::Part>> Grpo::divided(const std::vector<Answer>& answers, uint64_t step,
                                                   bool training) const {
  const bool whole_groups = info_.normaliser == Normaliser::Groups;
  const Conversations all = conversations_of(answers);
  std::vector<std::vector<size_t>> units;  // conversations that stay together: of an answer in one update
  for (size_t c = 0; c < all.each.size(); ++c) {
    const bool with_last =
        c > 0 && (whole_groups ? all.each[c].group == all.each[c - 1].group : all.answer[c] == all.answer[c - 1]);
    if (!with_last) units.emplace_back();
    units.back().push_back(c);
  }
  const size_t parts = training && !o_.brings_rows() ? static_cast<size_t>(updates_ / o_.num_iterations) : 1;
  if (parts > 1) Random(seed_, stream_named("minibatches"), step << 32).shuffle(std::span(units));
  std::vector<std::vector<Part>> updates(parts);
  for (size_t u = 0; u < parts; ++u) {
    std::vector<Part>& update = updates[u];
    std::vector<std::vector<size_t>> batches;  // of conversations
    for (size_t k = units.size() * u / parts; k < units.size() * (u + 1) / parts; ++k)
      for (size_t c = 0; c < units[k].size(); ++c) {
        const size_t more = whole_groups ? units[k].size() - c : 1;
        const bool fits = !batches.empty() && static_cast<int64_t>(batches.back().size() + more) <= micro_batch_;
        if (!fits && !(whole_groups && c > 0)) batches.emplace_back();
        batches.back().push_back(units[k][c]);
      }
    for (const std::vector<size_t>& conversations : batches) {
      Part& part = update.emplace_back();
      Samples samples;
      for (const size_t c : conversations) {
        const Answer& one = all.each[c];
        const bool joins = !samples.empty() && one.group == answers[part.answers.back()].group;
        part.answers.push_back(all.answer[c]);
        samples.push_back(learnt_sample(all, c, all.each.size() > answers.size(), joins));
      }
      part.batch = collate(samples).to(device_);
      if (shares_) part.batch.shared = shared_prefixes(part.batch);
    }
  }
  return updates;
}

void Grpo::add_logprobs(Actors& actors, Part& part) const {
  auto& columns = part.batch.token_columns;
  const bool of_sampler = learns_from_sampler();
  if (replay_.of_policy() || (!of_sampler && (updates_ > 1 || (o_.kl_rewarded() && o_.beta > 0)))) {
    const Batch read = replay_.before_updates(part.batch);
    columns[grpo_column::kOld] = Reference::of(actors.policy).logprobs(read, temperature_);
    if (replay_.of_policy()) part.batch.expert_TW = replay_.written_TW(read).to(device_);
  }
  if (of_sampler && grpo_column::is_in(part.batch, grpo_column::kEngine))
    columns[grpo_column::kOld] = columns[grpo_column::kEngine];
  if (o_.teacher_model)
    columns[grpo_column::kTeacher] =
        Reference::of(*actors.others.at("teacher").at(0)).logprobs(part.batch, temperature_);
  if (o_.beta == 0) return;
  require(actors.reference.has_value(), Fault::Usage, "--beta ", o_.beta,
          " holds the policy to a reference, and there is none: give --ref_model, or --beta 0");
  columns[grpo_column::kReference] = actors.reference->logprobs(part.batch, temperature_);
}

void Grpo::take_divergence(const Part& part, std::vector<Answer>& answers) const {
  const Batch& batch = part.batch;
  const at::Tensor old_T = grpo_column::is_in(batch, grpo_column::kOld)
                               ? batch.token_columns.at(grpo_column::kOld)
                               : batch.token_columns.at(grpo_column::kReference);
  const at::Tensor kl_T =
      kl_of_tokens(old_T, batch.token_columns.at(grpo_column::kReference), kl_estimate_named(o_.kl()), o_.bound_k3)
          .mul(batch.label_T.ge(0))
          .to(at::kCPU, at::kDouble);
  int64_t begin = 0;
  for (size_t s = 0; s < part.answers.size(); begin += batch.step.length_q[s++])
    answers[part.answers[s]].reward -= o_.beta * kl_T.narrow(0, begin, batch.step.length_q[s]).sum().item<double>();
}

// In evaluations ranks do not go in step, and each asks for whole groups.
WholeGroups Grpo::whole(const std::vector<Answer>& answers, Actors& actors, bool training) const {
  WholeGroups out =
      whole_groups(answers, rounds_ ? rounds_->weights().size() : 0, actors.data_ranks, training ? sharers_ : 1);
  if (rounds_) out.scored.weights = rounds_->weights();
  return out;
}

void Grpo::add_advantages(std::vector<std::vector<Part>>& updates, const WholeGroups& groups,
                          const RankSum& over_ranks) const {
  const Scale scale = scale_named(o_.scale());
  const std::vector<double> advantage = advantages(
      groups.scored,
      {.estimator = o_.advantage_estimator, .scale = scale, .epsilon = scale == Scale::Gdpo ? 1e-8 : 1e-4}, over_ranks);
  for (auto& update : updates)
    for (Part& part : update) {
      at::Tensor column_S = at::empty({static_cast<int64_t>(part.answers.size())}, at::kFloat);
      for (size_t s = 0; s < part.answers.size(); ++s)
        column_S[static_cast<int64_t>(s)] = advantage[groups.first + part.answers[s]];
      part.batch.sequence_columns[grpo_column::kAdvantage] = column_S.to(device_);
    }
}

}  // namespace apus
