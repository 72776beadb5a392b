// SPDX-License-Identifier: Apache-2.0
// What MiniCPM-o shares with MiniCPM-V.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

// `hears`: a MiniCPM-o, of which what sees and answers is read.
DecoderSpec read_minicpmv(const Config& config, bool hears);
Json minicpm_vision_says();

}  // namespace apus
