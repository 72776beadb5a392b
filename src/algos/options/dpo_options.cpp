// SPDX-License-Identifier: Apache-2.0
#include "algos/options/dpo_options.h"

#include <algorithm>

#include "algos/options/preference_options.h"
#include "train/options/algorithm_options.h"

namespace apus {

void DpoOptions::fields(OptionTable& v) {
  v.group("Loss");
  share_prefix_field(v, share_prefix);
  beta_field(v, beta, "how strongly the policy is held to the reference");
  v("loss_type", loss_type, "one, or several that are added: docs/alignment.md tells what each is")
      .common()
      .choices({"sigmoid", "hinge", "ipo", "robust", "exo_pair", "nca_pair", "bco_pair", "sppo_hard", "aot",
                "aot_unpaired", "aot_pair", "apo_zero", "apo_down", "discopop", "sft"})
      .noted();
  v("loss_weights", loss_weights, "a factor for each --loss_type").shown_default("all 1").noted();
  label_smoothing_field(v, label_smoothing);
  v("rpo_alpha", rpo_alpha, "add this times the negative log-likelihood of a token of the chosen answers")
      .common()
      .at_least(0)
      .noted();
  v("ld_alpha", ld_alpha,
    "the policy's log-probabilities of tokens behind the length of the shorter answer count this much")
      .at_least(0)
      .at_most(1)
      .noted();
  v("discopop_tau", discopop_tau, "discopop: temperature of its mixture").above(0).noted();
  v("f_divergence_type", f_divergence_type, "what is measured between policy and reference")
      .choices({"reverse_kl", "js_divergence", "alpha_divergence"})
      .noted();
  v("f_alpha_divergence_coef", f_alpha_divergence_coef, "alpha_divergence: the alpha in it").above(0).noted();
  v("reference_free", reference_free, "act as if the reference found all answers equally likely").noted();
}

bool DpoOptions::uses_reference() const {
  const bool only_sft = std::all_of(loss_type.begin(), loss_type.end(), [](const auto& type) { return type == "sft"; });
  return !reference_free && !only_sft;
}

AlgorithmNeeds DpoOptions::needs() const {
  const bool mean = std::count(loss_type.begin(), loss_type.end(), "bco_pair") > 0;
  return {.one_process = mean ? "--loss_type bco_pair" : ""};
}

void DpoOptions::check() const {
  require(!loss_type.empty(), Fault::Usage, "--loss_type names no loss");
  require(loss_weights.empty() || loss_weights.size() == loss_type.size(), Fault::Usage, "--loss_weights has ",
          loss_weights.size(), " factors for ", loss_type.size(), " losses of --loss_type: give one for each");
  const auto has = [&](const char* name) { return std::count(loss_type.begin(), loss_type.end(), name) > 0; };
  require(!has("robust") || label_smoothing < 0.5, Fault::Usage,
          "--loss_type robust divides by 1 - 2 label_smoothing: --label_smoothing must be below 0.5");
}

namespace {

const RegisterAlgorithmOptions<DpoOptions> dpo(
    "dpo", {.summary = "pairs of answers: the chosen one becomes likelier than the rejected one, against a reference",
            .command = "rlhf",
            .usual = true,
            .examples = {"rlhf --rlhf_type dpo --model DIR --dataset pairs.jsonl --output_dir out"},
            .defaults = preference_defaults(),
            .row_texts = 2,
            .cached_rows = "pairs"});

}  // namespace
}  // namespace apus
