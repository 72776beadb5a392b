// SPDX-License-Identifier: Apache-2.0
// What GPT-2's relatives say in the same words, and how they name their parts.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

// n_embd, n_layer, n_head, n_positions, n_inner, activation_function under the usual words too.
Json gpt_words(const Config& config);
// transformer.h.0.attn, ln_1, ln_2, ln_f; norms with biases. `act`: what the file means that says none.
void use_gpt_names(const Config& words, DecoderSpec& spec, const char* act);
// Positions are looked up in a table; nothing turns.
void use_gpt_positions(DecoderSpec& spec, const char* name, int64_t before = 0);

// The layers of OPT and its like: self_attn.out_proj, self_attn_layer_norm, fc1, fc2, final_layer_norm.
void use_opt_layers(DecoderSpec& spec, bool bias);

}  // namespace apus
