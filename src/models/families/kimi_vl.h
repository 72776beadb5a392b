// SPDX-License-Identifier: Apache-2.0
// What Kimi-VL shares with Kimi K2.5.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"
#include "models/spec/seeing_spec.h"

namespace apus {

// MoonViT by the names of Kimi-VL's files.
VisionSpec read_moonvit(const Config& vision);
// Below `language_model.`; media_placeholder_token_id or image_token_id stands for what the tower makes.
DecoderSpec with_moonvit(const Config& config, SeeingSpec seeing);

}  // namespace apus
