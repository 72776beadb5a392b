// SPDX-License-Identifier: Apache-2.0
// The options of simple preference optimisation.
#pragma once

#include <string>

#include "base/options.h"

namespace apus {

struct SimpoOptions {
  double beta = 2;
  double simpo_gamma = 1;
  double cpo_alpha = 1;
  double label_smoothing = 0;
  std::string loss_type = "simpo";
  bool share_prefix = false;
  void fields(OptionTable& v);
};

}  // namespace apus
