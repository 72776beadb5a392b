// SPDX-License-Identifier: Apache-2.0
#include "algos/options/rm_options.h"

#include "algos/options/preference_options.h"
#include "train/options/algorithm_options.h"

namespace apus {

void RmOptions::fields(OptionTable& v) {
  v.group("Loss");
  share_prefix_field(v, share_prefix);
  v("center_rewards_coefficient", center_rewards_coefficient,
    "add this times the square of the sum of a pair's rewards, which keeps them around 0; 0.01 is usual")
      .common()
      .at_least(0)
      .noted();
  v.refuse({"loss_type"}, "reward models have one loss");
  no_reference_fields(v);
}

namespace {

const RegisterAlgorithmOptions<RmOptions> rm(
    "rm", {.summary = "a reward model of pairs of answers: a number for each text, higher for the chosen one",
           .command = "rlhf",
           .examples = {"rlhf --rlhf_type rm --model DIR --dataset pairs.jsonl --output_dir out"},
           .defaults = preference_defaults(),
           .head = Head::Scalar,
           .row_texts = 2,
           .cached_rows = "pairs"});

}  // namespace
}  // namespace apus
