// SPDX-License-Identifier: Apache-2.0
// What MiniMax-Text-01 and M1 share, in transformers' form and in that of their own files.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

// Of transformers' words; slopes and more_layers are LightningForm's.
DecoderSpec read_minimax(const Config& config, std::vector<double> (*slopes)(int64_t heads), double more_layers);
// Of the words of their own files: attn_type_list, layernorm_..._alpha and _beta, rotary_dim.
DecoderSpec read_own_minimax(const Config& config);
// What their own files say of the known models beside their sizes.
Json own_minimax_says();

}  // namespace apus
