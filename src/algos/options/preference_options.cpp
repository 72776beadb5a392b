// SPDX-License-Identifier: Apache-2.0
#include "algos/options/preference_options.h"

namespace apus {

namespace {
constexpr const char* kSharesPrefix = "compute what the answers to one prompt begin with once for all of them";
}

Option& beta_field(OptionTable& v, double& beta, const std::string& help) {
  return v("beta", beta, help).above(0).noted();
}

Option& label_smoothing_field(OptionTable& v, double& label_smoothing) {
  return v("label_smoothing", label_smoothing, "share of the rows whose preference may be the wrong way round")
      .at_least(0)
      .at_most(0.999)
      .noted();
}

Option& cpo_alpha_field(OptionTable& v, double& alpha) {
  return v("cpo_alpha", alpha, "add this times the negative log-likelihood of a token of the chosen answers")
      .at_least(0)
      .noted();
}

Option& share_prefix_field(OptionTable& v, bool& share_prefix) {
  return v("share_prefix", share_prefix, kSharesPrefix).noted();
}

Option& share_prefix_field(OptionTable& v, std::optional<bool>& share_prefix) {
  return v("share_prefix", share_prefix, kSharesPrefix).noted().shown_default("true, where it comes to the same");
}

void no_reference_fields(OptionTable& v) {
  v.refuse({"ref_model", "ref_adapters", "precompute_ref_log_probs"},
           "this algorithm compares the policy with no other model");
}

Json preference_defaults(const char* loss_scale) { return {{"loss_scale", loss_scale}, {"lora_dropout", 0.0}}; }

}  // namespace apus
