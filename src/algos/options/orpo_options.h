// SPDX-License-Identifier: Apache-2.0
// The options of odds ratio preference optimisation.
#pragma once

#include "base/options.h"

namespace apus {

struct OrpoOptions {
  double beta = 0.1;
  bool share_prefix = false;
  void fields(OptionTable& v);
};

}  // namespace apus
