// SPDX-License-Identifier: Apache-2.0
// The small random model that tests of commands run with.
#pragma once

#include <filesystem>

#include "cli/init.h"
#include "run/runner.h"

namespace apus::test {

inline int init_tiny_model(const std::filesystem::path& dir) {
  InitOptions o;
  o.preset = "tiny";
  o.output_dir = dir.string();
  o.torch_dtype = "float32";
  o.common.seed = 3;
  return apus_run_command("init", &o);
}

}  // namespace apus::test
