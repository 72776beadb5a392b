// SPDX-License-Identifier: Apache-2.0
// What a vision tower holds while a model that sees is trained.
#pragma once

#include <cstdint>

#include "models/spec/seeing_spec.h"

namespace apus {

// What is known of a run's media when its rows have been read.
struct MediaFacts {
  int64_t tokens = 0;        // of one row those that stand for media, where there are most
  int64_t longest = 0;       // tokens of the longest row
  int64_t cached_bytes = 0;  // of media that are kept prepared, in the host's memory
};

// In bytes: what stays until the backward pass, and the most that is there besides at an instant of either pass.
struct TowerUse {
  double kept = 0, briefly = 0;
};

// `trained`: something in its layers is. `again`: those layers run again in the backward pass.
TowerUse tower_use(const VisionSpec& tower, double patches, double element, bool trained, bool again);

}  // namespace apus
