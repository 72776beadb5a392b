// SPDX-License-Identifier: Apache-2.0
// Frames of codes from sound: Mimi's encoder.
#pragma once

#include "models/spec/clone_spec.h"
#include "models/towers/parts.h"

namespace apus {

// sample_N: f32 at kSpeechRate -> int64 [frames, books]; a begun frame counts as one.
at::Tensor codes_of(const SoundCoderSpec& spec, const TowerParts& parts, const at::Tensor& sample_N);

}  // namespace apus
