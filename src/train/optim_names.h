// SPDX-License-Identifier: Apache-2.0
// What --optim may say.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace apus {

inline const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = {"adamw_torch",    "adamw_torch_fused", "adamw", "adamw_8bit",
                                                 "adamw_bnb_8bit", "paged_adamw_8bit",  "sgd",   "adafactor"};
  return names;
}

// The flag by which an optimizer is chosen that looks at whole matrices; "": each number is updated by itself.
inline std::string whole_matrices_flag(const std::string& optim, const std::optional<std::string>& optimizer) {
  return optimizer.value_or("") == "muon" ? "--optimizer muon" : optim == "adafactor" ? "--optim adafactor" : "";
}

}  // namespace apus
