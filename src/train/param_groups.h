// SPDX-License-Identifier: Apache-2.0
// Which trainable parameter gets which learning rate and weight decay.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "train/optimizer.h"

namespace apus {

struct GroupRules {
  double lr = 0, weight_decay = 0;
  // False: as HuggingFace's Trainer, no decay on biases and norms.
  bool decay_all = false;
  double lorap_lr_ratio = 0;   // > 0: LoRA+, B factors learn this many times faster
  double lorap_emb_lr = 1e-6;  // LoRA+: embedding factors
  // Parameters below a prefix with their own rate, first match.
  std::vector<std::pair<std::string, double>> lr_by_prefix;
};

bool decays(const std::string& parameter_name);  // HuggingFace's rule by name
std::vector<ParamGroup> make_groups(const std::vector<NamedParam>& params, const GroupRules& rules);

}  // namespace apus
