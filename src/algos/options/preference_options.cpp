// SPDX-License-Identifier: Apache-2.0
#include "algos/options/preference_options.h"

namespace apus {

Option& beta_field(OptionTable& v, double& beta, const std::string& help) {
  return v("beta", beta, help).above(0).noted();
}

Option& label_smoothing_field(OptionTable& v, double& label_smoothing) {
  return v("label_smoothing", label_smoothing, "share of the rows whose preference may be the wrong way round")
      .at_least(0)
      .at_most(0.999)
      .noted();
}

Json preference_defaults() { return {{"loss_scale", "last_round"}}; }

}  // namespace apus
