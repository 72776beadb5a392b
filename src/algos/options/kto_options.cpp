// SPDX-License-Identifier: Apache-2.0
#include "algos/options/kto_options.h"

#include "algos/options/preference_options.h"
#include "train/options/algorithm_options.h"

namespace apus {

void KtoOptions::fields(OptionTable& v) {
  v.group("Loss");
  beta_field(v, beta, "how strongly the policy is held to the reference");
  v("desirable_weight", desirable_weight, "a factor for rows whose label is true").common().at_least(0).noted();
  v("undesirable_weight", undesirable_weight, "a factor for rows whose label is false").common().at_least(0).noted();
  v("loss_type", loss_type, "docs/alignment.md tells what each is")
      .common()
      .choices({"kto", "apo_zero_unpaired"})
      .noted();
}

namespace {

const RegisterAlgorithmOptions<KtoOptions> kto(
    "kto", {.summary = "single answers with a label, good or bad, against a reference",
            .command = "rlhf",
            .examples = {"rlhf --rlhf_type kto --model DIR --dataset judged.jsonl --output_dir out"},
            .defaults = preference_defaults(),
            .compares_rows = false,
            .one_pass = false,
            .cached_rows = "labelled"});

}  // namespace
}  // namespace apus
