// SPDX-License-Identifier: Apache-2.0
// What nearly every family's config.json says in the same words. Biases, qk_norm and windows are the family's own.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

// What a family's configuration class in transformers takes where the file leaves a key out.
struct FamilyDefaults {
  // 0: as many as heads.
  int64_t kv_heads = 0;
  int64_t positions = 32768;
  // 0: intermediate_size must be there.
  int64_t ffn = 0;
  // 0: hidden / heads.
  int64_t head_dim = 0;
  // The file's mlp_bias counts.
  bool mlp_bias = false;
};

// Every layer is dense.
DecoderSpec read_decoder(const Config& config, const FamilyDefaults& defaults);

// The layers of a Qwen mixture of experts: every decoder_sparse_step-th one that mlp_only_layers does not name. The
// rest stay dense, and all of them where there are no experts.
void use_experts(const Config& config, DecoderSpec& spec, const MixtureSpec& mixture);

}  // namespace apus
