// SPDX-License-Identifier: Apache-2.0
#include "algos/options/chord_options.h"

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace apus {

void ChordOptions::fields(OptionTable& v) {
  v.group("Shown answers (CHORD)");
  v("chord_sft_dataset", chord_sft_dataset,
    "rows with answers that are learnt from beside the rewarded ones: the loss is (1 - mu) of these + mu of those")
      .noted();
  v("chord_sft_per_device_train_batch_size", chord_sft_per_device_train_batch_size,
    "rows that are shown beside each micro-batch of an update")
      .at_least(1)
      .noted();
  v("chord_mu_peak", chord_mu_peak, "CHORD: mu, the share of the shown answers in the loss, behind the warm-up")
      .at_least(0)
      .at_most(1)
      .noted();
  v("chord_mu_valley", chord_mu_valley, "CHORD: mu in the end").at_least(0).at_most(1).noted();
  v("chord_mu_warmup_steps", chord_mu_warmup_steps, "CHORD: updates in which mu rises from 0 to its peak")
      .at_least(0)
      .noted();
  v("chord_mu_decay_steps", chord_mu_decay_steps, "updates in which it falls from there to its valley")
      .at_least(0)
      .noted();
  v("chord_enable_phi_function", chord_enable_phi_function,
    "weigh each shown token by p (1 - p): what the model knows, or cannot believe, counts little")
      .noted();
}

double ChordOptions::chord_mu(int64_t step) const {
  const double peak = chord_mu_peak.value_or(0), valley = chord_mu_valley.value_or(0);
  const int64_t behind = step - chord_mu_warmup_steps;
  if (behind < 0) return peak * static_cast<double>(step) / static_cast<double>(chord_mu_warmup_steps);
  if (behind >= chord_mu_decay_steps) return valley;
  const double way = static_cast<double>(behind) / static_cast<double>(chord_mu_decay_steps);
  return valley + (peak - valley) * 0.5 * (1 + std::cos(std::numbers::pi * way));
}

void ChordOptions::check() const {
  if (chord_sft_dataset.empty()) {
    require(!chord_mu_peak && !chord_mu_valley && !chord_enable_phi_function && chord_mu_warmup_steps == 0 &&
                chord_mu_decay_steps == 0,
            Fault::Usage,
            "--chord_mu_* and --chord_enable_phi_function are of shown answers: give --chord_sft_dataset");
    return;
  }
  require(
      chord_mu_peak && chord_mu_valley, Fault::Usage,
      "--chord_sft_dataset needs --chord_mu_peak and --chord_mu_valley, the share of its answers in the loss at the "
      "beginning and in the end, e.g. 0.9 and 0.05");
  require(*chord_mu_peak < 1 || chord_mu_decay_steps > 0, Fault::Usage,
          "--chord_mu_peak 1 without --chord_mu_decay_steps would learn nothing from rewards: train with apus sft");
}

}  // namespace apus
