// SPDX-License-Identifier: Apache-2.0
// What Llava OneVision shares with Llava 1.6.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

// `text_type`, `feature_layer`: where the file leaves them out.
DecoderSpec read_mosaics(const Config& c, const char* text_type, int64_t feature_layer);

}  // namespace apus
