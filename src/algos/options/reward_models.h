// SPDX-License-Identifier: Apache-2.0
// The models of --reward_model, as an algorithm asks for them.
#pragma once

#include <vector>

#include "reward/reward_options.h"
#include "train/options/algorithm_options.h"

namespace apus {

inline std::vector<OtherModel> reward_models(RewardOptions& o) {
  std::vector<OtherModel> out;
  for (size_t i = 0; i < o.reward_model.size(); ++i)
    out.push_back({.role = "reward",
                   .flag = "--reward_model",
                   .folder = &o.reward_model[i],
                   .adapter = o.reward_adapters.empty() ? "" : o.reward_adapters[i],
                   .head = Head::Scalar});
  return out;
}

}  // namespace apus
