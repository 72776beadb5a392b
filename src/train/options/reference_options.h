// SPDX-License-Identifier: Apache-2.0
// With what the policy is compared, where an algorithm compares it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/options.h"

namespace apus {

struct ReferenceOptions {
  std::optional<std::string> ref_model;   // a folder; a hub's id until the command has fetched it
  std::vector<std::string> ref_adapters;  // one folder, or none
  bool precompute_ref_log_probs = false;
  std::optional<std::string> ref_log_probs_file;  // where they are kept for later runs
  void fields(OptionTable& v);
  // used: the algorithm's other options leave something to compare.
  void check(bool used) const;
  void forget_unused();  // where nothing is compared: says that they are not read, as peers leave them
};

}  // namespace apus
