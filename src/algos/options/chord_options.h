// SPDX-License-Identifier: Apache-2.0
// CHORD: while rewards teach, answers of a dataset are shown too, and count less and less.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"

namespace apus {

struct ChordOptions {
  std::vector<std::string> chord_sft_dataset;
  int64_t chord_sft_per_device_train_batch_size = 1;
  int64_t chord_mu_warmup_steps = 0, chord_mu_decay_steps = 0;
  std::optional<double> chord_mu_peak, chord_mu_valley;
  bool chord_enable_phi_function = false;

  // The share of the shown answers in the loss of the update behind `step` others: a line from 0 to the peak, then half
  // a cosine down to the valley.
  double chord_mu(int64_t step) const;
  void fields(OptionTable& v);
  void check() const;
};

}  // namespace apus
