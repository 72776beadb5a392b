// SPDX-License-Identifier: Apache-2.0
// What ModernBERT and its decoder have in common.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

// Layers that see their neighbourhood only: it, their own rotary angles, and the names of all parts. `window`: what
// such a layer sees back, with the token itself. `words`: the config, whose rope_theta is that of the other layers.
void use_modernbert_layers(const Config& c, Json words, int64_t window, DecoderSpec& spec);

}  // namespace apus
