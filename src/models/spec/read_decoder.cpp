// SPDX-License-Identifier: Apache-2.0
#include "models/spec/read_decoder.h"

#include <algorithm>
#include <cmath>

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

Json in_usual_words(const Config& c, const std::vector<std::pair<const char*, const char*>>& own_and_usual) {
  Json all = c.json();
  for (const auto& [own, usual] : own_and_usual)
    if (const Json* said = c.find(own); said && !all.contains(usual)) all[usual] = *said;
  return all;
}

DecoderSpec read_decoder(const Config& c, const FamilyDefaults& defaults) {
  DecoderSpec spec;
  spec.act = read_activation(c);
  ModelShape& shape = spec.shape = read_shape(c, defaults);
  spec.norm.eps = c.number("rms_norm_eps", defaults.eps);
  spec.tied = c.flag("tie_word_embeddings", defaults.tied);
  const RopeSpec rope = read_rope(c, shape.head_dim, shape.max_positions, defaults.rope);
  // These two reach further than the number in the file, which is the context before scaling in the usual recipes.
  if (rope.type == "yarn" || rope.type == "dynamic")
    shape.max_positions =
        std::max(shape.max_positions, static_cast<int64_t>(std::min(rope.original_positions * rope.factor, 1e9)));
  spec.ropes = {rope};
  spec.rope_of.assign(static_cast<size_t>(shape.layers), 0);
  spec.window.assign(static_cast<size_t>(shape.layers), 0);
  const DenseSpec dense{
      .ffn = defaults.ffn > 0 ? c.integer("intermediate_size", defaults.ffn) : c.integer("intermediate_size"),
      .bias = defaults.mlp_bias && c.flag("mlp_bias", false)};
  spec.feed_forward.assign(static_cast<size_t>(shape.layers), dense);
  return spec;
}

double read_softcap(const Config& c, const char* key, double unsaid) {
  const double cap = c.json().contains(key) ? c.number(key, 0) : unsaid;
  require(cap >= 0, Fault::Model, "config.json: '", key, "' must be above 0, or null for none; it is ", cap);
  return cap;
}

int64_t read_expert_count(const Config& c) {
  return c.integer(!c.find("num_experts") && c.find("num_local_experts") ? "num_local_experts" : "num_experts");
}

void use_kind(DecoderSpec& spec, FeedForwardKind kind, bool bias) {
  for (FeedForwardSpec& each : spec.feed_forward)
    std::get<DenseSpec>(each).kind = kind, std::get<DenseSpec>(each).bias = bias;
}

void use_names(DecoderSpec& spec, FeedForwardNames names) {
  for (FeedForwardSpec& each : spec.feed_forward) std::get<DenseSpec>(each).names = names;
}

void use_plain(DecoderSpec& spec, FeedForwardNames names, bool bias) {
  use_kind(spec, FeedForwardKind::Plain, bias);
  use_names(spec, names);
}

std::vector<double> usual_slopes(int64_t heads) {
  const auto power = static_cast<int64_t>(std::exp2(std::floor(std::log2(static_cast<double>(heads)))));
  const auto slope = [](int64_t n, int64_t of) {
    return std::exp2(-8.0 * static_cast<double>(n) / static_cast<double>(of));
  };
  std::vector<double> slopes;
  for (int64_t n = 1; n <= power; ++n) slopes.push_back(slope(n, power));
  for (int64_t n = 1; std::ssize(slopes) < heads; n += 2) slopes.push_back(slope(n, 2 * power));
  return slopes;
}

void use_slopes(DecoderSpec& spec, std::vector<double> slopes) {
  spec.attention.slopes = std::move(slopes);
  spec.shape.position_numbers = kPositionNumbers;
  turn_only(spec, [](size_t) { return false; });
}

void norms_after_branches(DecoderSpec& spec) {
  spec.norms = {.before_attention = "",
                .after_attention = "post_attention_layernorm",
                .before_feed_forward = "",
                .after_feed_forward = "post_feedforward_layernorm"};
}

void use_multipliers(const Config& c, DecoderSpec& spec) {
  const auto above_zero = [&](const char* key) {
    const double value = c.number(key, 1);
    require(value > 0, Fault::Model, "config.json: '", key, "' must be above 0, it is ", value);
    return value;
  };
  spec.embedding_scale = above_zero("embedding_multiplier");
  spec.attention.scale = above_zero("attention_multiplier");
  spec.branch_scale = above_zero("residual_multiplier");
  spec.logit_scale = 1 / above_zero("logits_scaling");
}

int64_t latent_turned(const Config& c) { return c.integer("qk_rope_head_dim", 64); }

void use_latent_attention(const Config& c, DecoderSpec& spec, bool neighbours, const LatentForm& unsaid) {
  const bool at_once = c.json().contains("q_lora_rank") && !c.find("q_lora_rank");  // null
  const LatentForm form{.query_rank = at_once ? 0 : c.integer("q_lora_rank", unsaid.query_rank),
                        .rank = c.integer("kv_lora_rank", unsaid.rank),
                        .still = c.integer("qk_nope_head_dim", unsaid.still),
                        .turned = c.integer("qk_rope_head_dim", unsaid.turned),
                        .value = c.integer("v_head_dim", unsaid.value)};
  require(form.query_rank >= 0 && form.rank > 0 && form.still > 0 && form.turned > 0 && form.turned % 2 == 0 &&
              form.value > 0,
          Fault::Model,
          "config.json: kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim and v_head_dim must be above 0, and "
          "qk_rope_head_dim even");
  spec.latent = form;
  spec.shape.latent = form.rank + form.turned;
  spec.shape.head_dim = form.still + form.turned;
  RopeSpec& rope = spec.ropes[0];
  rope.dim = form.turned, rope.neighbours = neighbours;  // whatever the file calls head_dim
  // As the original has it: a longer context sharpens the scores too.
  const bool sharper = rope.type == "yarn" && rope.mscale_all_dim != 0 && rope.factor > 1;
  const double by = sharper ? 0.1 * rope.mscale_all_dim * std::log(rope.factor) + 1 : 1;
  spec.attention.scale = by * by / std::sqrt(static_cast<double>(spec.shape.head_dim));
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
}

void use_index(const Config& c, DecoderSpec& spec, int64_t heads, bool neighbours) {
  LatentForm& latent = spec.latent.value();
  latent.index = {.heads = c.integer("index_n_heads", heads),
                  .dim = c.integer("index_head_dim", 128),
                  .chosen = c.integer("index_topk", 2048),
                  .neighbours = neighbours};
  require(
      latent.query_rank > 0 && latent.index.heads > 0 && latent.index.dim >= latent.turned && latent.index.chosen > 0,
      Fault::Model,
      "config.json: q_lora_rank, index_n_heads and index_topk must be above 0, and index_head_dim not below "
      "qk_rope_head_dim");
  spec.shape.latent += latent.index.dim;
}

void share_last_keys(const Config& c, DecoderSpec& spec, int64_t unsaid) {
  const int64_t layers = spec.shape.layers, shared = c.integer("num_kv_shared_layers", unsaid), first = layers - shared;
  require(shared >= 0 && (shared == 0 || first > 0), Fault::Model, "config.json: num_kv_shared_layers is ", shared,
          " of ", layers,
          " layers: such a model reads another one's keys and values (Gemma 4's assistants), and is "
          "not supported");
  for (int64_t i = first; i < layers; ++i) {
    int64_t lender = first - 1;
    const auto slides = [&](int64_t layer) { return spec.window[static_cast<size_t>(layer)] > 0; };
    while (lender >= 0 && slides(lender) != slides(i)) --lender;
    require(lender >= 0, Fault::Model, "config.json: layer ", i,
            " shares keys and values with layers of its kind before ", first, ", and there is none");
    spec.heads_of[static_cast<size_t>(i)].borrows = lender;
    spec.heads_of[static_cast<size_t>(lender)].lends = true;
  }
}

void turn_sliding_layers(DecoderSpec& spec, RopeSpec rope) {
  spec.ropes.push_back(std::move(rope));
  const int added = static_cast<int>(spec.ropes.size()) - 1;
  for (size_t i = 0; i < spec.window.size(); ++i)
    if (spec.window[i] > 0) spec.rope_of[i] = added;
}

void turn_only(DecoderSpec& spec, const std::function<bool(size_t)>& turns) {
  for (size_t i = 0; i < spec.rope_of.size(); ++i)
    if (!turns(i)) spec.rope_of[i] = kNoRope;
}

void use_experts(const Config& c, DecoderSpec& spec, const MixtureSpec& mixture,
                 const std::function<bool(int64_t)>& at) {
  require(spec.act == Activation::Silu || spec.act == Activation::GeluTanh || !mixture.gated, Fault::Model,
          "config.json: hidden_act '", c.text("hidden_act", ""),
          "' is not supported with experts, only silu and gelu_pytorch_tanh");
  const RouterForm& router = mixture.router;
  require(mixture.per_token > 0 && mixture.per_token <= mixture.experts && mixture.experts <= 65536, Fault::Model,
          "config.json: ", mixture.experts, " experts of which each token takes ", mixture.per_token,
          " do not fit together");
  require(router.groups > 0 && mixture.experts % router.groups == 0 && router.open_groups > 0 &&
              router.open_groups <= router.groups &&
              mixture.per_token <= mixture.experts / router.groups * router.open_groups &&
              (router.groups == 1 || !router.two_best || mixture.experts / router.groups > 1),
          Fault::Model, "config.json: n_group ", router.groups, " and topk_group ", router.open_groups, " do not fit ",
          mixture.experts, " experts of which each token takes ", mixture.per_token);
  spec.shape.experts = mixture.experts;
  spec.shape.experts_per_token = mixture.per_token;
  for (int64_t i = 0; i < spec.shape.layers; ++i)
    if (at(i)) spec.feed_forward[static_cast<size_t>(i)] = mixture;
}

std::function<bool(int64_t)> sparse_layers(const Config& c, int64_t layers, int64_t dense_first) {
  const auto types = c.texts("mlp_layer_types");
  if (types.empty()) {
    const int64_t dense = c.integer("first_k_dense_replace", dense_first);
    return [dense](int64_t layer) { return layer >= dense; };
  }
  require(std::ssize(types) == layers, Fault::Model, "config.json: mlp_layer_types has ", types.size(),
          " entries, the model ", layers, " layers");
  for (const std::string& type : types)
    require(type == "sparse" || type == "dense", Fault::Model, "config.json: mlp_layer_types names '", type,
            "'; known: sparse, dense");
  return [types](int64_t layer) { return types[static_cast<size_t>(layer)] == "sparse"; };
}

RouterForm read_sigmoid_router(const Config& c, double scale, bool normalise) {
  return {.sigmoid = true,
          .normalise = c.flag("norm_topk_prob", normalise),
          .scale = c.number("routed_scaling_factor", scale),
          .groups = c.integer("n_group", 1),
          .open_groups = c.integer("topk_group", 1)};
}

MixtureSpec read_routed_experts(const Config& c, const RoutedDefaults& unsaid) {
  const auto number = [&](const char* key, int64_t fallback) {
    return fallback > 0 ? c.integer(key, fallback) : c.integer(key);
  };
  const int64_t width = c.integer("moe_intermediate_size", unsaid.ffn);
  RouterForm router = read_sigmoid_router(c, unsaid.scale, unsaid.normalise);
  router.groups = c.integer("n_group", unsaid.groups), router.open_groups = c.integer("topk_group", unsaid.open_groups);
  return {
      .experts = number("n_routed_experts", unsaid.experts),
      .per_token = number("num_experts_per_tok", unsaid.per_token),
      .ffn = width,
      .shared_ffn = width * c.integer("n_shared_experts", unsaid.shared),
      .router = router,
      .names = {.correction = "gate.e_score_correction_bias", .shared = "shared_experts", .shared_is_gated = false}};
}

int64_t read_full_every(const Config& c) {
  const Json* pattern = c.find("sliding_window_pattern");
  const int64_t every = !pattern               ? 4
                        : pattern->is_string() ? std::ssize(pattern->get<std::string>())
                                               : c.integer("sliding_window_pattern");
  require(every > 0, Fault::Model, "config.json: sliding_window_pattern must name at least one layer");
  return every;
}

void use_qwen_experts(const Config& c, DecoderSpec& spec, const MixtureSpec& mixture) {
  if (mixture.experts == 0) return;
  const int64_t step = c.integer("decoder_sparse_step", 1);
  const auto dense = c.integers("mlp_only_layers");
  require(step > 0, Fault::Model, "config.json: decoder_sparse_step must be above 0");
  use_experts(c, spec, mixture, [&](int64_t i) {
    return std::find(dense.begin(), dense.end(), i) == dense.end() && (i + 1) % step == 0;
  });
}

}  // namespace apus
