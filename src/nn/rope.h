// SPDX-License-Identifier: Apache-2.0
// Rotary position tables: one position per token, or three (m-rope). Made on the host, so that they are the same for
// all devices, but where a device makes the same ones itself (ops/rope_table.h).
#pragma once

#include "nn/rope_spec.h"
#include "nn/step.h"

namespace apus {

// Fills step.turns, one for each spec, from step.position, on the position's device. Where ranks share out the tokens
// (nn/token_share.h): of those that this one attends with.
void fill_rope(const std::vector<RopeSpec>& specs, Step& step);
// Of positions that are no step's.
Turn turn_at(const RopeSpec& spec, const at::Tensor& position);

}  // namespace apus
