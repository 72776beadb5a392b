// SPDX-License-Identifier: Apache-2.0
// Options that several losses of preferences have, described once.
#pragma once

#include <optional>
#include <string>

#include "base/options.h"

namespace apus {

Option& beta_field(OptionTable& v, double& beta, const std::string& help);
Option& label_smoothing_field(OptionTable& v, double& label_smoothing);
Option& cpo_alpha_field(OptionTable& v, double& alpha);
Option& share_prefix_field(OptionTable& v, bool& share_prefix);
// Absent: where it comes to the same.
Option& share_prefix_field(OptionTable& v, std::optional<bool>& share_prefix);
// Those of a reference, where there is none.
void no_reference_fields(OptionTable& v);
// Options of training that have another default where answers are compared: nothing is dropped, so that policy and
// reference differ by what was learnt alone.
Json preference_defaults(const char* loss_scale = "last_round");

}  // namespace apus
