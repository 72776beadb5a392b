// SPDX-License-Identifier: Apache-2.0
// What Qwen3-Next and Qwen3.5 share: layers with a gated delta net among layers with gated attention.
#pragma once

#include "models/spec/decoder_spec.h"
#include "models/spec/read_decoder.h"

namespace apus {

// Every full_attention_interval-th layer attends where layer_types does not say which ones do. `apart`: what the delta
// nets read of their input comes from matrices of their own.
DecoderSpec read_gated_decoder(const Config& config, int64_t kv_heads, int64_t ffn, bool apart);

// The text parts of Qwen3.5 and Qwen3.5-MoE.
DecoderSpec read_qwen3_5(const Config& config);
DecoderSpec read_qwen3_5_moe(const Config& config);

// What config.json of well-known models says: of delta nets; of Qwen3.5's text parts; of whole models, whose tower
// gives rows of `out` numbers.
Json delta_says();
Json qwen3_5_says();
Json qwen3_5_tower_says(int64_t out);

}  // namespace apus
