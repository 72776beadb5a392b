// SPDX-License-Identifier: Apache-2.0
// What Keye-VL and Keye-VL 1.5 share.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

// Qwen3 behind PaddleOCR-VL's tower. `norm_of_cells`: what stands before the projector is normalised when four patches
// are one row already; else each patch for itself.
DecoderSpec read_keye(const Config& config, bool norm_of_cells);
Json keye_says();

}  // namespace apus
