// SPDX-License-Identifier: Apache-2.0
// The options of direct preference optimisation.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "train/options/algorithm_options.h"

namespace apus {

struct DpoOptions {
  double beta = 0.1;
  std::vector<std::string> loss_type = {"sigmoid"};
  std::vector<double> loss_weights;  // one for each loss type; empty: all 1
  double label_smoothing = 0;
  std::optional<double> rpo_alpha, ld_alpha;
  double discopop_tau = 0.05;
  std::string f_divergence_type = "reverse_kl";
  double f_alpha_divergence_coef = 0.5;
  bool reference_free = false;

  double weight(size_t i) const { return loss_weights.empty() ? 1 : loss_weights[i]; }
  bool uses_reference() const;
  AlgorithmNeeds needs() const;
  bool share_prefix = false;
  void fields(OptionTable& v);
  void check() const;
};

}  // namespace apus
