// SPDX-License-Identifier: Apache-2.0
// What --optim may say.
#pragma once

#include <string>
#include <vector>

namespace apus {

inline const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = {"adamw_torch",    "adamw_torch_fused", "adamw", "adamw_8bit",
                                                 "adamw_bnb_8bit", "paged_adamw_8bit",  "sgd",   "adafactor"};
  return names;
}

}  // namespace apus
