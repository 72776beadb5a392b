// SPDX-License-Identifier: Apache-2.0
// Which layers of a Qwen mixture of experts are sparse, and their feed-forward.
#pragma once

#include "models/decoder.h"
#include "nn/moe.h"

namespace apus {

// Sparse: every decoder_sparse_step-th layer that mlp_only_layers does not name. The rest keep the dense block.
inline void use_experts(const Config& c, DecoderSpec& spec, MoeMlp::Spec moe) {
  if (moe.experts == 0) return;  // every layer is dense
  require(spec.act == Activation::Silu, Fault::Model, "config.json: hidden_act '", c.text("hidden_act", ""),
          "' is not supported with experts, only silu");
  const int64_t step = c.integer("decoder_sparse_step", 1);
  const auto dense_layers = c.integers("mlp_only_layers");
  require(moe.per_token > 0 && moe.per_token <= moe.experts && moe.experts <= 65536 && step > 0, Fault::Model,
          "config.json: num_experts ", moe.experts, ", num_experts_per_tok ", moe.per_token,
          " and decoder_sparse_step ", step, " do not fit together");
  spec.shape.experts = moe.experts;
  spec.shape.experts_per_token = moe.per_token;
  spec.feed_forward = [dense = spec.feed_forward, moe, step, dense_layers](int64_t i) -> std::unique_ptr<FeedForward> {
    const bool named_dense = std::find(dense_layers.begin(), dense_layers.end(), i) != dense_layers.end();
    if (named_dense || (i + 1) % step != 0) return dense(i);
    return std::make_unique<MoeMlp>(moe);
  };
}

}  // namespace apus
