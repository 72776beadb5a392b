// SPDX-License-Identifier: Apache-2.0
// Experts that the policy's tokens meet again while they are learnt from (--router_replay_mode): those that they met
// while an engine drew them (R3), or that the policy chose before the updates of the round (R2).
#pragma once

#include <map>
#include <string>

#include "algos/options/router_replay_options.h"
#include "nn/expert_choices.h"
#include "train/algorithm.h"

namespace apus {

struct Answer;  // algos/answers.h

class ExpertReplay {
 public:
  explicit ExpertReplay(RouterReplayOptions options) : o_(std::move(options)) {}
  // Of a collection: refuses a policy whose experts cannot be taken over, and has the engine tell of its own.
  void begin(Actors& actors);
  bool of_policy() const { return o_.replays_policy(); }
  // R3: a sample of an answer gets what the engine told.
  void add_experts(Sample& sample, const Answer& answer) const;
  // The batch as the policy reads it before the updates. With R2 its step writes down which experts its tokens meet;
  // from there they come as Batch::expert_TW.
  Batch before_updates(const Batch& batch) const;
  static at::Tensor written_TW(const Batch& read) { return read.step.met_experts->written_TW(); }  // on the host

 private:
  const RouterReplayOptions o_;
  int64_t met_ = 0;  // experts of a token in all mixtures; 0: tokens meet what routers choose
};

// For the policy, whose tokens meet those again; a reference's, a teacher's and a critic's meet their own.
void tell_experts(Batch& batch);
Batch with_experts(Batch batch);
// Of a loss: how many of the told choices the routers would have made otherwise.
void note_changed_experts(const Batch& batch, std::map<std::string, Ratio>& metrics);

}  // namespace apus
