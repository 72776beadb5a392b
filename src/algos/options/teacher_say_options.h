// SPDX-License-Identifier: Apache-2.0
// What a teacher's opinion of each token does to an answer that was rewarded, beside being added to its advantage.
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"

namespace apus {

struct TeacherSayOptions {
  std::string advantage_reweight;  // "rlsd", or empty
  double rlsd_lambda = 0.5, rlsd_reweight_clip_range = 0.2;
  int64_t rlsd_lambda_warmup_steps = 0, rlsd_lambda_decay_steps = 0;
  bool rlsd_negative_only = false;
  double sdar_loss_coef = 0, sdar_gate_beta = 5;

  bool reweights() const { return !advantage_reweight.empty(); }
  bool gates() const { return sdar_loss_coef > 0; }
  // RLSD's weight in the update behind so many.
  double rlsd_lambda_at(int64_t step) const;
  void fields(OptionTable& v);
  // `taught`: there is a teacher; `rewarded`: and something else that rewards.
  void check(bool taught, bool rewarded) const;
};

}  // namespace apus
