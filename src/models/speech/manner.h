// SPDX-License-Identifier: Apache-2.0
// How a voice speaks, found in a sample of it: ECAPA-TDNN.
#pragma once

#include "models/spec/flow_spec.h"
#include "models/towers/parts.h"

namespace apus {

// mel_TM: time, bands -> [width of what is found]. Time has more rows than the farthest convolution reaches.
at::Tensor manner_of(const MannerSpec& spec, const TowerParts& parts, const at::Tensor& mel_TM);

}  // namespace apus
