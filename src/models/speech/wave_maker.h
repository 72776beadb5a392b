// SPDX-License-Identifier: Apache-2.0
// Samples of sound from a picture of it (mel): BigVGAN.
#pragma once

#include "models/spec/flow_spec.h"
#include "models/towers/parts.h"

namespace apus {

// mel_TM: time, bands, as logarithms of amplitudes -> samples [n] in [-1, 1].
at::Tensor wave_of(const WaveSpec& spec, const TowerParts& parts, const at::Tensor& mel_TM);

}  // namespace apus
