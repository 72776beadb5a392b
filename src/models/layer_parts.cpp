// SPDX-License-Identifier: Apache-2.0
#include "models/layer_parts.h"

#include <utility>
#include <variant>

#include "models/spec/seeing_spec.h"
#include "nn/attention.h"
#include "nn/latent_attention.h"
#include "nn/moe_by_kind.h"
#include "nn/picture_attention.h"
#include "nn/pooled_attention.h"

namespace apus {

namespace {
std::unique_ptr<FeedForward> make_block(const DecoderSpec& spec, const DenseSpec& dense) {
  return std::make_unique<Mlp>(spec.shape.hidden, dense.ffn,
                               Mlp::Spec{.bias = dense.bias,
                                         .down_bias = dense.down_bias,
                                         .gate_last = dense.gate_last,
                                         .act = spec.act,
                                         .kind = dense.kind,
                                         .names = dense.names,
                                         .gate_scale = dense.gate_scale,
                                         .out_scale = dense.out_scale,
                                         .sparsity = dense.sparsity});
}

MoeMlp::Spec mixture_spec(const DecoderSpec& spec, const MixtureSpec& mixture) {
  return MoeMlp::Spec{.hidden = spec.shape.hidden,
                      .ffn = mixture.ffn,
                      .experts = mixture.experts,
                      .per_token = mixture.per_token,
                      .shared_ffn = mixture.shared_ffn,
                      .out_scale = mixture.out_scale,
                      .clamp = mixture.clamp,
                      .gated = mixture.gated,
                      .latent = mixture.latent,
                      .weighs_input = mixture.weighs_input,
                      .idle = mixture.idle,
                      .limit = mixture.limit,
                      .shared_limit = mixture.shared_limit,
                      .words = spec.shape.vocab,
                      .act = spec.act,
                      .router = mixture.router,
                      .router_eps = spec.norm.eps,
                      .names = mixture.names};
}
}  // namespace

namespace {
// Of the experts that a layer's token meets, those that are written down.
int64_t experts_met_in(const FeedForwardSpec& kind) {
  const auto* mixture = std::get_if<MixtureSpec>(&kind);
  return mixture && !mixture->names.by_word && mixture->media_ffn == 0 ? mixture->per_token : 0;
}
}  // namespace

int64_t experts_met_before(const DecoderSpec& spec, int64_t layer) {
  int64_t met = 0;
  for (int64_t i = 0; i < layer; ++i) met += experts_met_in(spec.feed_forward[static_cast<size_t>(i)]);
  return met;
}

std::unique_ptr<MoeMlp> make_mixture(const DecoderSpec& spec, int64_t layer) {
  const FeedForwardSpec& kind = spec.feed_forward[static_cast<size_t>(layer)];
  MoeMlp::Spec made = mixture_spec(spec, std::get<MixtureSpec>(kind));
  if (experts_met_in(kind) > 0) made.place = experts_met_before(spec, layer);
  return std::make_unique<MoeMlp>(std::move(made));
}

std::unique_ptr<FeedForward> make_feed_forward(const DecoderSpec& spec, int64_t layer) {
  const FeedForwardSpec& wanted = spec.feed_forward[static_cast<size_t>(layer)];
  if (const auto* dense = std::get_if<DenseSpec>(&wanted)) return make_block(spec, *dense);
  if (std::holds_alternative<NoFeedForward>(wanted)) return nullptr;
  const auto& mixture = std::get<MixtureSpec>(wanted);
  if (mixture.beside) return make_block(spec, *mixture.beside);
  if (mixture.media_ffn > 0)
    return std::make_unique<MoeByKind>(mixture_spec(spec, mixture), mixture_spec(spec, mixture.of_media()));
  return make_mixture(spec, layer);
}

std::string block_name(const DecoderSpec& spec, int64_t layer) {
  const auto* mixture = std::get_if<MixtureSpec>(&spec.feed_forward[static_cast<size_t>(layer)]);
  return mixture && !mixture->beside ? mixture->names.block : spec.dense_name;
}

namespace {
Attention::Spec attention_spec(const DecoderSpec& spec, int64_t index) {
  const auto i = static_cast<size_t>(index);
  const int turn = spec.rope_of[i];
  AttentionForm form = spec.attention;
  const LayerHeads heads = spec.heads_in(index);
  form.sinks = heads.sinks;
  if (heads.one_for_both) form.v_name = nullptr;
  return {.layer = index,
          .hidden = spec.shape.hidden,
          .heads = heads.heads,
          .kv_heads = heads.kv_heads,
          .head_dim = heads.head_dim,
          .form = form,
          .norm = spec.norm,
          .window = spec.window[i],
          .turn = turn,
          .neighbours = turn != kNoRope && spec.ropes[static_cast<size_t>(turn)].neighbours,
          .borrows = heads.borrows,
          .lends = heads.lends,
          .ahead = spec.window[i] > 0 || !spec.seeing || !spec.seeing->ahead_in_windows_only};
}

PooledAttention::Spec pooled_spec(const DecoderSpec& spec, int64_t index) {
  const auto i = static_cast<size_t>(index), turn = static_cast<size_t>(spec.rope_of[i]);
  return {.layer = index,
          .hidden = spec.shape.hidden,
          .heads = spec.shape.heads,
          .dim = spec.shape.head_dim,
          .window = spec.window[i],
          .eps = spec.norm.eps,
          .turn = turn,
          .rope = spec.ropes[turn],
          .pool = spec.pooled->pools[i],
          .form = *spec.pooled};
}
}  // namespace

std::unique_ptr<Mixer> make_attention(const DecoderSpec& spec, int64_t index) {
  if (spec.looks_at_pictures(index))
    return std::make_unique<PictureAttention>(PictureAttention::Spec{.layer = index,
                                                                     .hidden = spec.shape.hidden,
                                                                     .heads = spec.shape.heads,
                                                                     .kv_heads = spec.shape.kv_heads,
                                                                     .head_dim = spec.shape.head_dim,
                                                                     .norm = spec.norm,
                                                                     .layers = std::ssize(spec.pictures->layers)});
  if (spec.pooled) return std::make_unique<PooledAttention>(pooled_spec(spec, index));
  if (spec.latent) {
    LatentForm form = *spec.latent;
    if (!form.taken_of.empty()) form.index.taken_of = form.taken_of[static_cast<size_t>(index)];
    return std::make_unique<LatentAttention>(attention_spec(spec, index), form);
  }
  return std::make_unique<Attention>(attention_spec(spec, index));
}

std::unique_ptr<Mixer> make_sound_attention(const DecoderSpec& spec, int64_t index) {
  return std::make_unique<PictureAttention>(PictureAttention::Spec{.layer = index,
                                                                   .hidden = spec.shape.hidden,
                                                                   .heads = spec.shape.heads,
                                                                   .kv_heads = spec.shape.kv_heads,
                                                                   .head_dim = spec.shape.head_dim,
                                                                   .layers = spec.shape.layers,
                                                                   .bias = true,
                                                                   .out_name = "out_proj"});
}

}  // namespace apus
