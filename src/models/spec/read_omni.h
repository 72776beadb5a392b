// SPDX-License-Identifier: Apache-2.0
// What config.json of Qwen's Omni models says in the same words: the part that reads and writes text stands in
// thinker_config. How they speak: models/spec/speech_spec.h.
#pragma once

#include "models/spec/hearing_spec.h"
#include "models/spec/read_seeing.h"

namespace apus {

// thinker_config, or the whole.
Config thinker_part(const Config& config);

// Makes a decoder one that sees and hears. `tokens`: what the keys of its media tokens end with.
void use_senses(const Config& thinker, DecoderSpec& spec, SeeingSpec seeing, HearingSpec hearing, const char* tokens);

}  // namespace apus
