// SPDX-License-Identifier: Apache-2.0
// Llava 1.6 as its authors' files say it: the text part's settings at the top level, the tower by its name on the hub.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

// `text_type`: the family of the text part.
DecoderSpec read_own_llava(const Config& config, const char* text_type);
// What such a config.json says besides the text part's settings.
Json own_llava_says();

}  // namespace apus
