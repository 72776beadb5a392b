// SPDX-License-Identifier: Apache-2.0
// The options of supervised fine-tuning (sft) and of pre-training (pt).
#pragma once

#include <string>

#include "base/options.h"

namespace apus {

struct SftOptions {
  double label_smoothing_factor = 0;
  bool enable_dft_loss = false;
  bool enable_channel_loss = false;
  std::string acc_strategy = "token";  // token, seq
  void fields(OptionTable& v);
};

}  // namespace apus
