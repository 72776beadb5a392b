// SPDX-License-Identifier: Apache-2.0
#include "models/decoder.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace apus {

DecoderSpec read_decoder(const Config& c, const FamilyDefaults& defaults) {
  DecoderSpec spec;
  spec.act = read_activation(c);
  ModelShape& shape = spec.shape;
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
  spec.eps = c.number("rms_norm_eps", 1e-6);
  spec.tied = c.flag("tie_word_embeddings", false);
  spec.rope = read_rope(c, shape.head_dim, shape.max_positions);
  // These two reach further than the number in the file, which is the context before scaling in the usual recipes.
  if (spec.rope.type == "yarn" || spec.rope.type == "dynamic")
    shape.max_positions = std::max(
        shape.max_positions, static_cast<int64_t>(std::min(spec.rope.original_positions * spec.rope.factor, 1e9)));
  spec.window.assign(static_cast<size_t>(shape.layers), 0);
  const int64_t hidden = shape.hidden;
  const int64_t ffn = defaults.ffn > 0 ? c.integer("intermediate_size", defaults.ffn) : c.integer("intermediate_size");
  const Mlp::Spec mlp{.bias = defaults.mlp_bias && c.flag("mlp_bias", false), .only_added = true, .act = spec.act};
  spec.feed_forward = [hidden, ffn, mlp](int64_t) { return std::make_unique<Mlp>(hidden, ffn, mlp); };
  return spec;
}

DecoderLayer::DecoderLayer(const DecoderSpec& spec, int64_t index)
    : norm1_(child<RmsNorm>("input_layernorm", spec.shape.hidden, spec.eps)),
      attention_(child<Attention>("self_attn", Attention::Spec{.layer = index,
                                                               .hidden = spec.shape.hidden,
                                                               .heads = spec.shape.heads,
                                                               .kv_heads = spec.shape.kv_heads,
                                                               .head_dim = spec.shape.head_dim,
                                                               .qkv_bias = spec.qkv_bias,
                                                               .out_bias = spec.out_bias,
                                                               .qk_norm = spec.qk_norm,
                                                               .eps = spec.eps,
                                                               .window = spec.window[static_cast<size_t>(index)]})),
      norm2_(child<RmsNorm>("post_attention_layernorm", spec.shape.hidden, spec.eps)),
      mlp_(adopt("mlp", spec.feed_forward(index))) {}

at::Tensor DecoderLayer::operator()(const at::Tensor& x_TD, const Step& s) const {
  const auto [sum_TD, normed_TD] = norm2_.add(x_TD, attention_(norm1_(x_TD), s));
  return sum_TD + mlp_(normed_TD, s);
}

struct Decoder::Backbone : Module {
  struct Layers : Module {
    explicit Layers(const DecoderSpec& spec) {
      for (int64_t i = 0; i < spec.shape.layers; ++i) list.push_back(&child<DecoderLayer>(std::to_string(i), spec, i));
    }
    std::vector<DecoderLayer*> list;
  };
  explicit Backbone(const DecoderSpec& spec)
      : embed(child<Embedding>("embed_tokens", spec.shape.vocab, spec.shape.hidden)),
        layers(child<Layers>("layers", spec)),
        norm(child<RmsNorm>("norm", spec.shape.hidden, spec.eps)) {}
  Embedding& embed;
  Layers& layers;
  RmsNorm& norm;
};

Decoder::Decoder(DecoderSpec spec)
    : spec_(std::move(spec)),
      backbone_(child<Backbone>("model", spec_)),
      lm_head_(child<Linear>("lm_head", Linear::Spec{.in = spec_.shape.hidden, .out = spec_.shape.vocab, .split = Split::Out})) {
  if (spec_.tied) lm_head_.weight().tied = "model.embed_tokens.weight";
}

void Decoder::begin(Step& s) const {
  fill_rope(spec_.rope, s);
  Param& head = lm_head_.weight();  // untied where one of the two is trained or merged for itself
  const bool shared = !head.tied.empty() && at::GradMode::is_enabled() && head.data.requires_grad();
  s.table = shared ? std::make_shared<at::Tensor>() : nullptr;
}

at::Tensor Decoder::embed(const at::Tensor& id_T, const Step& s) const {
  if (!s.table) return backbone_.embed(id_T, s);
  const auto [x_TD, table_VD] = ops::embedding_and_table(id_T, backbone_.embed.weight().data);
  *s.table = table_VD;
  return x_TD;
}
at::Tensor Decoder::layer(int64_t i, at::Tensor x_TD, const Step& s) const {
  return (*backbone_.layers.list[static_cast<size_t>(i)])(x_TD, s);
}
at::Tensor Decoder::final_norm(const at::Tensor& x_TD) const { return backbone_.norm(x_TD); }
ops::HeadFactors Decoder::head_factors(const at::Tensor& normed_TD, const Step& s) const {
  if (s.table && s.table->defined()) return Model::head_factors(normed_TD, s);
  return lm_head_.factors(normed_TD, s);
}
at::Tensor Decoder::head_weight() const { return lm_head_.weight().data; }
at::Tensor Decoder::head(const at::Tensor& normed_TD, const Step& s) const { return lm_head_(normed_TD, s); }

}  // namespace apus
