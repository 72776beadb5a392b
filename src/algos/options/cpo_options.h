// SPDX-License-Identifier: Apache-2.0
// The options of contrastive preference optimisation.
#pragma once

#include <string>

#include "base/options.h"

namespace apus {

struct CpoOptions {
  double beta = 0.1;
  std::string loss_type = "sigmoid";  // sigmoid, hinge, ipo
  double label_smoothing = 0;
  double cpo_alpha = 1;
  bool share_prefix = false;
  void fields(OptionTable& v);
};

}  // namespace apus
