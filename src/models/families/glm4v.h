// SPDX-License-Identifier: Apache-2.0
// What the GLMs that see have in common: the tower, and a text part that is a GLM of its own.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

// The text part, read as the family `type` reads it. `unsaid` stands where the file leaves a key out, `fixed` whatever
// it says.
DecoderSpec read_glm_text(const Config& config, const char* type, const Json& unsaid, const Json& fixed);
// GLM-4.1V, 4.5V and 4.6V.
DecoderSpec with_glm_tower(const Config& config, DecoderSpec text);
// GLM-4.1V and 4.6V-Flash whole, and what presets of them say.
DecoderSpec read_glm4v(const Config& config);
Json glm4v_says();
// GLM-OCR: without learned positions, with norms of each head's queries and keys.
DecoderSpec with_glm_ocr_tower(const Config& config, DecoderSpec text);

// Of presets: the tokens from `first` on are the marks around images and videos, then those that stand for them.
Json glm_sight_says(int64_t begin_image, int64_t image, Json text, Json vision);

}  // namespace apus
