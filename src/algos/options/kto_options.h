// SPDX-License-Identifier: Apache-2.0
// The options of Kahneman-Tversky optimisation.
#pragma once

#include <string>

#include "base/options.h"

namespace apus {

struct KtoOptions {
  double beta = 0.1;
  double desirable_weight = 1, undesirable_weight = 1;
  std::string loss_type = "kto";  // kto, apo_zero_unpaired
  bool uses_reference() const { return true; }
  void fields(OptionTable& v);
};

}  // namespace apus
