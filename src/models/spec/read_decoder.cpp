// SPDX-License-Identifier: Apache-2.0
#include "models/spec/read_decoder.h"

#include <algorithm>

#include "base/error.h"

namespace apus {

namespace {
ModelShape read_shape(const Config& c, const FamilyDefaults& defaults) {
  ModelShape shape;
  shape.layers = c.integer("num_hidden_layers");
  shape.hidden = c.integer("hidden_size");
  shape.heads = c.integer("num_attention_heads");
  const bool unsaid = !c.json().contains("num_key_value_heads") && defaults.kv_heads > 0;  // null: as many as heads
  shape.kv_heads = unsaid ? std::min(defaults.kv_heads, shape.heads) : c.integer("num_key_value_heads", shape.heads);
  require(shape.heads > 0 && shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, Fault::Model,
          "config.json: num_attention_heads ", shape.heads, " must be a multiple of num_key_value_heads ",
          shape.kv_heads);
  shape.head_dim = c.integer("head_dim", defaults.head_dim > 0 ? defaults.head_dim : shape.hidden / shape.heads);
  shape.vocab = c.integer("vocab_size");
  shape.max_positions = c.integer("max_position_embeddings", defaults.positions);
  require(shape.layers > 0 && shape.layers <= 4096 && shape.hidden > 0 && shape.head_dim > 0 && shape.vocab > 0,
          Fault::Model, "config.json: layers, hidden_size, head_dim and vocab_size must be above 0");
  return shape;
}
}  // namespace

DecoderSpec read_decoder(const Config& c, const FamilyDefaults& defaults) {
  DecoderSpec spec;
  spec.act = read_activation(c);
  ModelShape& shape = spec.shape = read_shape(c, defaults);
  spec.eps = c.number("rms_norm_eps", 1e-6);
  spec.tied = c.flag("tie_word_embeddings", false);
  spec.rope = read_rope(c, shape.head_dim, shape.max_positions);
  // These two reach further than the number in the file, which is the context before scaling in the usual recipes.
  if (spec.rope.type == "yarn" || spec.rope.type == "dynamic")
    shape.max_positions = std::max(
        shape.max_positions, static_cast<int64_t>(std::min(spec.rope.original_positions * spec.rope.factor, 1e9)));
  spec.window.assign(static_cast<size_t>(shape.layers), 0);
  const DenseSpec dense{
      .ffn = defaults.ffn > 0 ? c.integer("intermediate_size", defaults.ffn) : c.integer("intermediate_size"),
      .bias = defaults.mlp_bias && c.flag("mlp_bias", false)};
  spec.feed_forward.assign(static_cast<size_t>(shape.layers), dense);
  return spec;
}

void use_experts(const Config& c, DecoderSpec& spec, const MixtureSpec& mixture) {
  if (mixture.experts == 0) return;
  require(spec.act == Activation::Silu, Fault::Model, "config.json: hidden_act '", c.text("hidden_act", ""),
          "' is not supported with experts, only silu");
  const int64_t step = c.integer("decoder_sparse_step", 1);
  const auto dense = c.integers("mlp_only_layers");
  require(mixture.per_token > 0 && mixture.per_token <= mixture.experts && mixture.experts <= 65536 && step > 0,
          Fault::Model, "config.json: num_experts ", mixture.experts, ", num_experts_per_tok ", mixture.per_token,
          " and decoder_sparse_step ", step, " do not fit together");
  spec.shape.experts = mixture.experts;
  spec.shape.experts_per_token = mixture.per_token;
  for (int64_t i = 0; i < spec.shape.layers; ++i) {
    const bool named_dense = std::find(dense.begin(), dense.end(), i) != dense.end();
    if (!named_dense && (i + 1) % step == 0) spec.feed_forward[static_cast<size_t>(i)] = mixture;
  }
}

}  // namespace apus
