// SPDX-License-Identifier: Apache-2.0
#include "models/eagle_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <limits>

#include "models/spec/config.h"
#include "models/spec/family.h"
#include "nn/rope.h"

namespace apus {

namespace {
// Its settings are those of a model of the usual kind with one layer.
DecoderSpec describe(Json config) {
  config["model_type"] = "llama", config["architectures"] = {"LlamaForCausalLM"};
  DecoderSpec spec = describe_model(config);
  require(spec.shape.layers == 1 && std::holds_alternative<DenseSpec>(spec.feed_forward[0]), Fault::Model,
          "the Eagle-3 head's config.json: num_hidden_layers is ", spec.shape.layers,
          ", and only heads of 1 are known");
  return spec;
}

// The first ones, the middle and the last ones, unless config.json names them. Where it does so inside of eagle_config,
// a number is that of the layer; elsewhere that of the one behind it.
std::vector<int64_t> layers_seen(const Config& c, int64_t layers) {
  std::vector<int64_t> behind = {2, layers / 2, layers - 3};
  const char* const key = "eagle_aux_hidden_state_layer_ids";
  const Json inner = c.json().value("eagle_config", Json::object());
  if (c.find(key)) behind = c.integers(key);
  if (inner.is_object() && inner.contains(key)) {
    behind = Config(inner).integers(key);
    for (int64_t& each : behind) ++each;
  }
  for (int64_t& each : behind) {
    require(each >= 1 && each <= layers, Fault::Model, "the Eagle-3 head looks at the states before layer ", each,
            ", and the model has ", layers, " layers: is it made for this model?");
    --each;
  }
  return behind;
}
}  // namespace

struct EagleHead::Layer : Module {
  explicit Layer(const DecoderSpec& spec)
      : token_norm(child<Norm>("input_layernorm", spec.shape.hidden, spec.norm)),
        state_norm(child<Norm>("hidden_norm", spec.shape.hidden, spec.norm)),
        attention(child<Attention>("self_attn", Attention::Spec{.hidden = spec.shape.hidden,
                                                                .heads = spec.shape.heads,
                                                                .kv_heads = spec.shape.kv_heads,
                                                                .head_dim = spec.shape.head_dim,
                                                                .in = 2 * spec.shape.hidden,
                                                                .form = spec.attention,
                                                                .norm = spec.norm})),
        fed_norm(child<Norm>("post_attention_layernorm", spec.shape.hidden, spec.norm)),
        feed_forward(child<Mlp>("mlp", spec.shape.hidden, std::get<DenseSpec>(spec.feed_forward[0]).ffn,
                                Mlp::Spec{.act = spec.act})) {}
  Norm &token_norm, &state_norm;
  Attention& attention;
  Norm& fed_norm;
  Mlp& feed_forward;
};

EagleHead::EagleHead(const Json& config, const ModelShape& model, bool own_words)
    : spec_(describe(config)),
      vocab_(model.vocab),
      words_(Config(config).integer("draft_vocab_size", model.vocab)),
      normed_sum_(Config(config).flag("norm_before_residual", false)),
      seen_(apus::layers_seen(Config(config), model.layers)),
      embed_(own_words ? &child<Embedding>("embed_tokens", spec_.shape.vocab, spec_.shape.hidden) : nullptr),
      join_(child<Linear>("fc", Linear::Spec{.in = std::ssize(seen_) * model.hidden, .out = spec_.shape.hidden})),
      layer_(child<Layer>("midlayer", spec_)),
      norm_(child<Norm>("norm", spec_.shape.hidden, spec_.norm)),
      head_(child<Linear>("lm_head", Linear::Spec{.in = spec_.shape.hidden, .out = words_})) {
  require(own_words || spec_.shape.hidden == model.hidden, Fault::Model, "the Eagle-3 head is ", spec_.shape.hidden,
          " wide and has no embedding of its own, and the model's is ", model.hidden,
          " wide: is it made for this model?");
}

at::Tensor EagleHead::begin(const at::Tensor& seen_TA) const { return join_(seen_TA, Step()); }

at::Tensor EagleHead::states(const Model& model, const Inputs& next, const at::Tensor& state_TD, Step& s) const {
  s.position = model.Model::positions(next, s);
  const at::Tensor token_TD = layer_.token_norm(embed_ ? (*embed_)(next.id_T, s) : model.embed(next, s)),
                   before_TD = layer_.state_norm(state_TD);
  fill_rope(spec_.ropes, s);
  const at::Tensor sum_TD =
      (normed_sum_ ? before_TD : state_TD) + layer_.attention(at::cat({token_TD, before_TD}, 1), s);
  return sum_TD + layer_.feed_forward(layer_.fed_norm(sum_TD), s);
}

at::Tensor EagleHead::logits(const Model& /*model*/, const at::Tensor& state_RD) const {
  const at::Tensor own_RW = head_.wide(norm_(state_RD), Step());
  if (!id_W_.defined()) return own_RW;
  at::Tensor logits_RV = at::full({own_RW.size(0), vocab_}, -std::numeric_limits<float>::infinity(), own_RW.options());
  return logits_RV.index_copy_(1, id_W_, own_RW);
}

}  // namespace apus
