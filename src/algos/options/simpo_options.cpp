// SPDX-License-Identifier: Apache-2.0
#include "algos/options/simpo_options.h"

#include "algos/options/preference_options.h"
#include "train/options/algorithm_options.h"

namespace apus {

void SimpoOptions::fields(OptionTable& v) {
  v.group("Loss");
  share_prefix_field(v, share_prefix);
  beta_field(v, beta, "how much a difference of the mean log-probabilities of a token counts");
  v("simpo_gamma", simpo_gamma, "the margin by which the chosen answer should lead, after --beta").common().noted();
  cpo_alpha_field(v, cpo_alpha);
  label_smoothing_field(v, label_smoothing);
  v("loss_type", loss_type, "the loss; SimPO has one").choices({"simpo"});
  no_reference_fields(v);
}

namespace {

const RegisterAlgorithmOptions<SimpoOptions> simpo(
    "simpo", {.summary = "pairs of answers, without a reference: likelier by token, by a margin",
              .command = "rlhf",
              .examples = {"rlhf --rlhf_type simpo --model DIR --dataset pairs.jsonl --cpo_alpha 0 --output_dir out"},
              .defaults = preference_defaults(),
              .row_texts = 2,
              .cached_rows = "pairs"});

}  // namespace
}  // namespace apus
