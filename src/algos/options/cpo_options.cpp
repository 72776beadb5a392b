// SPDX-License-Identifier: Apache-2.0
#include "algos/options/cpo_options.h"

#include "algos/options/preference_options.h"
#include "train/options/algorithm_options.h"

namespace apus {

void CpoOptions::fields(OptionTable& v) {
  v.group("Loss");
  share_prefix_field(v, share_prefix);
  beta_field(v, beta, "how much a difference of log-probabilities counts");
  v("loss_type", loss_type, "docs/alignment.md tells what each is")
      .common()
      .choices({"sigmoid", "hinge", "ipo"})
      .noted();
  label_smoothing_field(v, label_smoothing);
  cpo_alpha_field(v, cpo_alpha);
  no_reference_fields(v);
}

namespace {

const RegisterAlgorithmOptions<CpoOptions> cpo(
    "cpo", {.summary = "pairs of answers, without a reference: likelier than the other, and likely by itself",
            .command = "rlhf",
            .examples = {"rlhf --rlhf_type cpo --model DIR --dataset pairs.jsonl --output_dir out"},
            .defaults = preference_defaults(),
            .row_texts = 2,
            .cached_rows = "pairs"});

}  // namespace
}  // namespace apus
