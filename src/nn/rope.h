// SPDX-License-Identifier: Apache-2.0
// Rotary position tables: one position per token, or three (m-rope). Computed on the host, since tables made on a
// device differ from device to device.
#pragma once

#include "nn/rope_spec.h"
#include "nn/step.h"

namespace apus {

// Fills step.turns, one for each spec, from step.position, on the position's device.
void fill_rope(const std::vector<RopeSpec>& specs, Step& step);

}  // namespace apus
