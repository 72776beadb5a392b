// SPDX-License-Identifier: Apache-2.0
// How many processes the environment says this run has.
#pragma once

#include <cstdint>

#include "dist/launch/environment.h"

namespace apus {

inline int64_t started_ranks() {
  const auto launched = read_launch(process_environment());
  return launched ? launched->ranks * launched->nodes : read_rank(process_environment()).world;
}

}  // namespace apus
