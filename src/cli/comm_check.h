// SPDX-License-Identifier: Apache-2.0
// The options of `apus comm-check`, which the doctor starts on all ranks; its body is run/comm_check.cpp.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/options.h"

namespace apus {

struct CommCheckOptions {
  std::string device = "auto";
  int64_t megabytes = 16, repeats = 5;
  double ddp_timeout = 120;
  bool json = false, pairs = true;
  std::optional<std::string> output;  // file for the JSON
  void fields(OptionTable& v);
  std::filesystem::path ranks_dir() const;
};

}  // namespace apus
