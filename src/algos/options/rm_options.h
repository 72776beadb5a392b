// SPDX-License-Identifier: Apache-2.0
// The options of training a reward model.
#pragma once

#include <optional>

#include "base/options.h"

namespace apus {

struct RmOptions {
  std::optional<double> center_rewards_coefficient;
  bool share_prefix = false;
  void fields(OptionTable& v);
};

}  // namespace apus
