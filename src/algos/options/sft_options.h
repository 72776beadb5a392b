// SPDX-License-Identifier: Apache-2.0
// The options of supervised fine-tuning (sft) and of pre-training (pt).
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"
#include "train/options/algorithm_options.h"

namespace apus {

struct SftOptions {
  double label_smoothing_factor = 0;
  bool enable_dft_loss = false;
  bool enable_asft_loss = false, enable_eaft_loss = false;
  double asft_alpha = 0.1, eaft_alpha = 1;
  bool enable_channel_loss = false;
  int64_t mtp_num_layers = 0;
  double mtp_loss_scaling_factor = 0.1;
  std::string acc_strategy = "token";  // token, seq
  AlgorithmNeeds needs() const {
    return {.whole_logits = enable_eaft_loss   ? "--enable_eaft_loss"
                            : enable_asft_loss ? "--enable_asft_loss"
                                               : "",
            .ahead = mtp_num_layers > 0 ? "--mtp_num_layers" : ""};
  }
  bool uses_reference() const { return enable_asft_loss && asft_alpha > 0; }
  void fields(OptionTable& v);
  void check() const;
};

}  // namespace apus
