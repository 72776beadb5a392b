// SPDX-License-Identifier: Apache-2.0
#include "models/decoder.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include "nn/moe.h"
#include "nn/rope.h"
#include "nn/training_step.h"

namespace apus {

namespace {
std::unique_ptr<FeedForward> make_feed_forward(const DecoderSpec& spec, int64_t layer) {
  const FeedForwardSpec& wanted = spec.feed_forward[static_cast<size_t>(layer)];
  if (const auto* dense = std::get_if<DenseSpec>(&wanted))
    return std::make_unique<Mlp>(spec.shape.hidden, dense->ffn, Mlp::Spec{.bias = dense->bias, .act = spec.act});
  const auto& mixture = std::get<MixtureSpec>(wanted);
  return std::make_unique<MoeMlp>(MoeMlp::Spec{.hidden = spec.shape.hidden,
                                               .ffn = mixture.ffn,
                                               .experts = mixture.experts,
                                               .per_token = mixture.per_token,
                                               .normalise = mixture.normalise,
                                               .shared_ffn = mixture.shared_ffn});
}
}  // namespace

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
      mlp_(adopt("mlp", make_feed_forward(spec, index))) {
  mlp_.result_is_only_added();
}

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

namespace {
Linear::Spec head_spec(const DecoderSpec& spec) {
  if (spec.head == Head::Scalar) return {.in = spec.shape.hidden, .out = spec.labels};
  return {.in = spec.shape.hidden, .out = spec.shape.vocab, .split = Split::Out};
}
}  // namespace

Decoder::Decoder(DecoderSpec spec) : spec_(std::move(spec)), backbone_(child<Backbone>(spec_.backbone, spec_)) {
  if (spec_.head != Head::None) head_ = &child<Linear>(head_name(), head_spec(spec_));
  if (spec_.tied && spec_.head == Head::Vocab) head_->weight().tied = embed_name() + ".weight";
}

Linear& Decoder::words() const {
  require(head_, Fault::Bug, "logits are asked of a model without a head");
  return *head_;
}

void Decoder::begin(Step& s) const {
  fill_rope(spec_.rope, s);
  // Untied where one of the two is trained or merged for itself.
  const Param* head = head_ ? &head_->weight() : nullptr;
  const bool shared = head && !head->tied.empty() && at::GradMode::is_enabled() && head->data.requires_grad();
  if (!shared && !training_of(s).table) return;
  TrainingStep training = training_of(s);
  training.table = shared ? std::make_shared<at::Tensor>() : nullptr;
  set_training(s, std::move(training));
}

at::Tensor Decoder::embed(const Inputs& in, const Step& s) const {
  for (const auto& spans : in.media)
    require(spans.empty(), Fault::Usage, "this model reads text only, and ", spans.size(),
            " images, videos or sounds came with it; send text, or take a model that reads them");
  const auto& table = training_of(s).table;
  if (!table) return backbone_.embed(in.id_T, s);
  const auto [x_TD, table_VD] = ops::embedding_and_table(in.id_T, backbone_.embed.weight().data);
  *table = table_VD;
  return x_TD;
}
at::Tensor Decoder::layer(int64_t i, at::Tensor x_TD, const Step& s) const {
  return (*backbone_.layers.list[static_cast<size_t>(i)])(x_TD, s);
}
at::Tensor Decoder::final_norm(const at::Tensor& x_TD) const { return backbone_.norm(x_TD); }
ops::HeadFactors Decoder::head_factors(const at::Tensor& normed_TD, const Step& s) const {
  require(spec_.head == Head::Vocab, Fault::Bug, "a loss over words is asked of a model whose head gives scores");
  const auto& table = training_of(s).table;
  if (table && table->defined()) return Model::head_factors(normed_TD, s);
  return words().factors(normed_TD, s);
}
at::Tensor Decoder::head_weight() const { return words().weight().data; }
at::Tensor Decoder::head(const at::Tensor& normed_TD, const Step& s) const { return words()(normed_TD, s); }

}  // namespace apus
