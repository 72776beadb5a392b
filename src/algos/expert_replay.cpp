// SPDX-License-Identifier: Apache-2.0
#include "algos/expert_replay.h"

#include <ATen/ops/full.h>

#include "algos/answers.h"
#include "train/rollout.h"

namespace apus {

void ExpertReplay::begin(Actors& actors) {
  if (o_.replay_asked().empty()) return;
  met_ = actors.policy.experts_met();
  require(met_ > 0, Fault::Model, o_.replay_asked(), ": the experts of this model are chosen by words or ",
          "by kinds of tokens, which cannot be taken over: leave it out");
  if (o_.replays_engine()) actors.rollout->tell_experts();
}

void ExpertReplay::add_experts(Sample& sample, const Answer& answer) const {
  if (met_ == 0 || !o_.replays_engine()) return;
  sample.experts = answer.experts;
  require(!sample.experts.empty(), Fault::Io, "--router_replay_mode R3: an answer came without the experts that its ",
          "tokens met. Is the rollout server of this version?");
  require(std::ssize(sample.experts) % met_ == 0, Fault::Model, "--router_replay_mode R3: a token meets ", met_,
          " experts here, and others where it was drawn: is the rollout server's model this one?");
  sample.experts.resize(sample.ids.size() * static_cast<size_t>(met_), ExpertChoices::kUnknown);
}

// Told nothing, a router chooses by the same sums as one that is told: the ratios of the first update are 1 to the bit.
Batch ExpertReplay::before_updates(const Batch& batch) const {
  if (met_ == 0 || !o_.replays_policy()) return with_experts(batch);
  Batch out = batch;
  out.step.met_experts = std::make_shared<ExpertChoices>(met_);
  out.step.told_experts = std::make_shared<ExpertChoices>(
      at::full({batch.id_T.size(0), met_}, ExpertChoices::kUnknown, batch.id_T.options().dtype(at::kShort)));
  return out;
}

void tell_experts(Batch& batch) {
  if (batch.expert_TW.defined()) batch.step.told_experts = std::make_shared<ExpertChoices>(batch.expert_TW);
}

Batch with_experts(Batch batch) {
  tell_experts(batch);
  return batch;
}

void note_changed_experts(const Batch& batch, std::map<std::string, Ratio>& metrics) {
  if (!batch.step.told_experts) return;
  const auto& [others, all] = batch.step.told_experts->compared();
  metrics["router_replay/changed"] = {others.to(at::kFloat), all.to(at::kFloat)};
}

}  // namespace apus
