// SPDX-License-Identifier: Apache-2.0
#include "algos/options/orpo_options.h"

#include "algos/options/preference_options.h"
#include "train/options/algorithm_options.h"

namespace apus {

void OrpoOptions::fields(OptionTable& v) {
  v.group("Loss");
  share_prefix_field(v, share_prefix);
  beta_field(v, beta, "how much the odds of the two answers count beside the likelihood of the chosen one");
  v.refuse({"loss_type"}, "orpo has one loss");
  no_reference_fields(v);
}

namespace {

// The likelihood of the chosen answer is learnt as by sft: all answers of a conversation.
const RegisterAlgorithmOptions<OrpoOptions> orpo(
    "orpo", {.summary = "pairs of answers, without a reference: fine-tuning on the chosen ones, and better odds",
             .command = "rlhf",
             .examples = {"rlhf --rlhf_type orpo --model DIR --dataset pairs.jsonl --output_dir out"},
             .defaults = preference_defaults("default"),
             .row_texts = 2,
             .cached_rows = "pairs"});

}  // namespace
}  // namespace apus
