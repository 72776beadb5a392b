// SPDX-License-Identifier: Apache-2.0
// What Llava OneVision and Llava 1.6 for videos share with Llava 1.6.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

// `text_type`, `feature_layer`: where the file leaves them out.
DecoderSpec read_mosaics(const Config& c, const char* text_type, int64_t feature_layer);
// What config.json of Llava 1.6 says of a text part, and of the rest.
Json next_text_says(const char* type, const char* architecture);
Json next_says(int64_t image_token);

}  // namespace apus
