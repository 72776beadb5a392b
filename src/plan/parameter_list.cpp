// SPDX-License-Identifier: Apache-2.0
#include "plan/parameter_list.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "models/spec/seeing_spec.h"

namespace apus {
namespace {

class Listing {
 public:
  Listing(const DecoderSpec& spec, std::vector<ParamFacts>& params)
      : spec_(spec), shape_(spec.shape), hidden_(spec.shape.hidden), params_(params) {}

  void all() {
    const std::string in = spec_.backbone + ".";
    plain(str(in, spec_.embed_name, ".weight"), {shape_.vocab + spec_.more_words, hidden_});
    if (const auto& table = spec_.position_table; table && !table->name.empty())
      plain(str(in, table->name, ".weight"), {shape_.max_positions + table->before, hidden_});
    if (!spec_.embedding_norm.empty()) norm(in + spec_.embedding_norm, hidden_);
    for (int64_t i = 0; i < shape_.layers; ++i) layer(str(in, spec_.layers_name, ".", i), i);
    if (!spec_.final_norm.empty()) norm(in + spec_.final_norm, hidden_);
    if (const auto& streams = spec_.streams) {
      plain(in + "hc_head.hc_fn", {streams->count, streams->count * hidden_});
      plain(in + "hc_head.hc_base", {streams->count});
      plain(in + "hc_head.hc_scale", {1});
    }
    if (const auto& given = spec_.layer_inputs) {
      const int64_t of_all = shape_.layers * given->width;
      plain(in + "embed_tokens_per_layer.weight", {given->words, of_all});
      linear(in + "per_layer_model_projection", hidden_, of_all, false);
      norm(in + "per_layer_projection_norm", given->width);
    }
    const int64_t other_streams = spec_.altup ? spec_.altup->count - 1 : 0;
    for (int64_t i = 0; i < other_streams; ++i) linear(str(in, "altup_projections.", i), hidden_, hidden_, false);
    for (int64_t i = 0; i < other_streams; ++i)
      plain(str(in, "altup_unembed_projections.", i, ".weight"), {hidden_, hidden_});
    if (spec_.head == Head::Scalar)
      linear(spec_.encoder ? spec_.encoder->head.out : "score", hidden_, spec_.labels, spec_.encoder.has_value());
    else if (spec_.head == Head::Vocab && !spec_.tied)
      linear(spec_.head_name, hidden_, shape_.vocab, spec_.head_bias);
    else if (spec_.head == Head::Vocab && spec_.head_bias)
      plain(spec_.head_name + ".bias", {shape_.vocab});
    if (const auto& own = spec_.head_dense; own && spec_.head == Head::Vocab) {
      linear(own->dense, hidden_, hidden_, own->bias);
      norm(own->norm, hidden_);
    }
    if (spec_.seeing) towers(parts_of(*spec_.seeing));
    if (spec_.encoder) encoder(*spec_.encoder);
  }

 private:
  void plain(const std::string& name, std::vector<int64_t> shape) { params_.push_back({name, std::move(shape)}); }
  void linear(const std::string& name, int64_t in, int64_t out, bool bias) {
    params_.push_back({name + ".weight", {out, in}, true});
    if (bias) plain(name + ".bias", {out});
  }
  void norm(const std::string& name, int64_t size) {
    if (has_weight(spec_.norm.kind)) plain(name + ".weight", {size});
    if (has_bias(spec_.norm.kind)) plain(name + ".bias", {size});
  }
  void encoder(const EncoderForm& form) {
    const std::string in = spec_.backbone + ".";
    if (form.types > 0) plain(str(in, form.types_name, ".weight"), {form.types, hidden_});
    if (spec_.attention.by_distance) plain(str(in, form.distances_name, ".weight"), {kDistanceClasses, shape_.heads});
    if (spec_.head != Head::Scalar || form.head.dense.empty()) return;
    linear(form.head.dense, hidden_, hidden_, form.head.dense_bias);
    if (!form.head.norm.empty()) norm(form.head.norm, hidden_);
  }
  void towers(const std::vector<TowerPart>& parts) {
    const size_t first = params_.size();
    for (const TowerPart& part : parts) tower_part(part);
    for (size_t i = first; i < params_.size(); ++i) params_[i].tower = true;
  }
  void tower_part(const TowerPart& part) {
    if (part.kind == TowerPart::Kind::Norm && !has_weight(part.norm.kind)) return;
    const bool bare = part.kind == TowerPart::Kind::Bare || part.kind == TowerPart::Kind::Fixed;
    params_.push_back({part.name + (bare ? "" : ".weight"), part.shape, part.kind == TowerPart::Kind::Linear});
    const bool bias = part.kind == TowerPart::Kind::Norm ? part.norm.kind == NormKind::MeanAndBias : part.bias;
    if (bias) plain(part.name + ".bias", {part.shape[0]});
  }
  void norm_of_layer(const std::string& layer, const std::string& name) {
    if (!name.empty()) norm(layer + "." + name, hidden_);
  }
  void layer(const std::string& name, int64_t i) {
    const Keeps keeps = shape_.keeps_in(i);
    const LayerNorms norms = spec_.norms_in(i);
    const bool pictures = spec_.looks_at_pictures(i);
    if (pictures)
      for (const std::string& gate : {spec_.pictures->attention_gate, spec_.pictures->feed_forward_gate})
        plain(name + "." + gate, {1});
    if (spec_.scaled_layers) plain(name + ".layer_scalar", {1});
    norm_of_layer(name, norms.before_attention);
    const std::string attends = str(name, ".", spec_.attention_in(i));
    if (pictures)
      picture_attention(attends);
    else if (spec_.pooled)
      pooled_attention(attends, *spec_.pooled, i);
    else if (keeps_tokens(keeps))
      spec_.latent ? latent_attention(attends, *spec_.latent, i) : attention(attends, i);
    if (keeps_state(keeps) && spec_.state)
      std::visit([&](const auto& form) { state_layer(str(name, ".", state_layer_name(form)), form); }, *spec_.state);
    norm_of_layer(name, norms.after_attention);
    if (!spec_.feeds_forward(i)) return;
    const FeedForwardSpec& kind = spec_.feed_forward[static_cast<size_t>(i)];
    norm_of_layer(name, norms.before_feed_forward);
    const auto* mixed = std::get_if<MixtureSpec>(&kind);
    const DenseSpec* dense = !mixed ? &std::get<DenseSpec>(kind) : mixed->beside ? &*mixed->beside : nullptr;
    if (dense)
      feed_forward(spec_.dense_name.empty() ? name : str(name, ".", spec_.dense_name), *dense);
    else
      mixture(name, *mixed);
    norm_of_layer(name, norms.after_feed_forward);
    if (spec_.sound) sound_reading(name, *spec_.sound);
    if (mixed && dense && mixed->late) mixture(name, *mixed);
    if (mixed && dense && !mixed->late) {
      for (const char* each : {"post_feedforward_layernorm_1", "pre_feedforward_layernorm_2"})
        norm_of_layer(name, each);
      norm_of_layer(name, "post_feedforward_layernorm_2");
      mixture(name, *mixed);
    }
    if (const auto& given = spec_.layer_inputs) {
      linear(name + ".per_layer_input_gate", hidden_, given->width, false);
      linear(name + ".per_layer_projection", given->width, hidden_, false);
      norm_of_layer(name, "post_per_layer_input_norm");
    }
    if (const auto& altup = spec_.altup) altup_weights(name, *altup);
    if (const auto& streams = spec_.streams)
      for (const char* each : {".attn_hc", ".ffn_hc"}) stream_weights(name + each, *streams);
  }
  void picture_attention(const std::string& name) {
    const int64_t q = shape_.heads * shape_.head_dim, k = shape_.kv_heads * shape_.head_dim;
    linear(name + ".q_proj", hidden_, q, false);
    for (const char* each : {".k_proj", ".v_proj"}) linear(name + each, hidden_, k, false);
    linear(name + ".o_proj", q, hidden_, false);
    for (const char* each : {".q_norm", ".k_norm"}) norm(name + each, shape_.head_dim);
  }
  void sound_reading(const std::string& layer, const SoundReading& sound) {
    norm_of_layer(layer, sound.norm);
    const std::string name = str(layer, ".", sound.attention, ".");
    for (const char* each : {"q_proj", "k_proj", "v_proj", "out_proj"})
      linear(name + each, hidden_, hidden_, std::string(each) != "k_proj");
  }
  void attention(const std::string& name, int64_t layer) {
    const AttentionForm& form = spec_.attention;
    const LayerHeads heads = spec_.heads_in(layer);
    const int64_t q = heads.heads * heads.head_dim, k = heads.kv_heads * heads.head_dim;
    const int64_t value = form.value_dim > 0 ? form.value_dim : heads.head_dim;
    const bool own = heads.borrows < 0;
    if (heads.sinks) plain(name + ".sinks", {heads.heads});
    if (form.experts > 0) return query_experts(name, k);
    if (form.fused != Fused::No) {
      linear(str(name, ".", form.fused_name), hidden_, q + 2 * k, form.qkv_bias);
    } else {
      linear(str(name, ".", form.q_name), hidden_, form.gated ? 2 * q : q, form.qkv_bias);
      if (own) linear(str(name, ".", form.k_name), hidden_, k, form.qkv_bias && form.key_bias);
      if (own && !heads.one_for_both)
        linear(str(name, ".", form.v_name), hidden_, heads.kv_heads * value, form.qkv_bias);
    }
    linear(str(name, ".", form.out_name), heads.heads * value, hidden_, form.out_bias);
    if (form.gate_name) linear(str(name, ".", form.gate_name), hidden_, form.gates_heads ? heads.heads : q, false);
    if (!has_weights(form.qk_norm)) return;
    const bool all = form.qk_norm == QkNorm::AllHeads;
    for (const bool queries : {true, false}) {
      if (!queries && !own) continue;
      const std::string its = str(name, ".", qk_norm_name(form, queries));
      if (form.qk_norm == QkNorm::EachHead)
        head_norms(its, queries ? shape_.heads : shape_.kv_heads);
      else
        norm(its, !all ? heads.head_dim : queries ? q : k);
    }
  }
  void stream_weights(const std::string& name, const StreamsForm& streams) {
    plain(name + ".fn", {streams.said(), streams.count * hidden_});
    plain(name + ".base", {streams.said()});
    plain(name + ".scale", {streams.scales()});
  }
  void altup_weights(const std::string& layer, const AltUpForm& altup) {
    const int64_t n = altup.count;
    plain(layer + ".altup.correct_output_scale", {hidden_});
    linear(layer + ".altup.correction_coefs", n, n, false);
    linear(layer + ".altup.prediction_coefs", n, n * n, false);
    linear(layer + ".altup.modality_router", hidden_, n, false);
    norm_of_layer(layer, "altup.router_norm");
    linear(layer + ".laurel.linear_left", hidden_, altup.rank, false);
    linear(layer + ".laurel.linear_right", altup.rank, hidden_, false);
    norm_of_layer(layer, "laurel.post_laurel_norm");
  }
  // One expert's queries are as many numbers as the keys.
  void query_experts(const std::string& name, int64_t keys) {
    const AttentionForm& form = spec_.attention;
    plain(name + ".experts.input_linear.weight", {form.experts, keys, hidden_});
    params_.back().stacked = true;
    plain(name + ".experts.output_linear.weight", {form.experts, hidden_, keys});
    params_.back().stacked = true;
    plain(name + ".experts.bias", {hidden_});
    linear(name + ".experts.router.layer", hidden_, form.experts, false);
    linear(name + ".kv_proj", hidden_, 2 * keys, form.qkv_bias);
  }
  void head_norms(const std::string& name, int64_t heads) {
    if (!spec_.attention.qk_norms_apart) return plain(name + ".weight", {heads, shape_.head_dim});
    for (int64_t i = 0; i < heads; ++i) plain(str(name, ".norms.", i, ".weight"), {shape_.head_dim});
  }
  void latent_attention(const std::string& name, const LatentForm& form, int64_t layer) {
    const bool bias = spec_.attention.qkv_bias;
    if (spec_.attention.sinks) plain(name + ".sinks", {shape_.heads});
    const int64_t queries = shape_.heads * (form.still + form.turned);
    if (form.query_rank > 0) {
      linear(name + ".q_a_proj", hidden_, form.query_rank, bias);
      plain(name + ".q_a_layernorm.weight", {form.query_rank});
      linear(name + ".q_b_proj", form.query_rank, queries, false);
    } else {
      linear(name + ".q_proj", hidden_, queries, false);
    }
    linear(name + ".kv_a_proj_with_mqa", hidden_, form.rank + form.turned, bias);
    plain(name + ".kv_a_layernorm.weight", {form.rank});
    linear(name + ".kv_b_proj", form.rank, shape_.heads * (form.still + form.value), false);
    linear(name + ".o_proj", shape_.heads * form.value, hidden_, spec_.attention.out_bias);
    if (const char* gate = spec_.attention.gate_name)
      linear(str(name, ".", gate), hidden_, shape_.heads * (spec_.attention.gates_heads ? 1 : form.value), false);
    if (form.index.heads == 0 || (!form.taken_of.empty() && form.taken_of[static_cast<size_t>(layer)] >= 0)) return;
    linear(name + ".indexer.wq_b", form.query_rank, form.index.heads * form.index.dim, false);
    linear(name + ".indexer.wk", hidden_, form.index.dim, false);
    plain(name + ".indexer.k_norm.weight", {form.index.dim});
    plain(name + ".indexer.k_norm.bias", {form.index.dim});
    linear(name + ".indexer.weights_proj", hidden_, form.index.heads, false);
  }
  void pooled_attention(const std::string& name, const PooledForm& form, int64_t layer) {
    const int64_t dim = shape_.head_dim;
    plain(name + ".sinks", {shape_.heads});
    linear(name + ".q_a_proj", hidden_, form.query_rank, false);
    plain(name + ".q_a_norm.weight", {form.query_rank});
    linear(name + ".q_b_proj", form.query_rank, shape_.heads * dim, false);
    linear(name + ".kv_proj", hidden_, dim, false);
    plain(name + ".kv_norm.weight", {dim});
    plain(name + ".o_a_proj.weight", {form.groups * form.group_rank, shape_.heads * dim / form.groups});
    linear(name + ".o_b_proj", form.groups * form.group_rank, hidden_, false);
    const PooledForm::Pool& pool = form.pools[static_cast<size_t>(layer)];
    if (pool.tokens == 0) return;
    key_pool(name + ".compressor", pool, dim);
    if (!pool.chosen) return;
    const std::string index = name + ".compressor.indexer";
    key_pool(index, pool, form.index.dim);
    linear(index + ".q_b_proj", form.query_rank, form.index.heads * form.index.dim, false);
    linear(index + ".scorer.weights_proj", hidden_, form.index.heads, false);
  }
  void key_pool(const std::string& name, const PooledForm::Pool& pool, int64_t dim) {
    const int64_t half = pool.made(dim) / 2;
    plain(name + ".position_bias", {pool.tokens, half});
    for (const char* each : {".kv_proj", ".gate_proj"}) linear(name + each, hidden_, half, false);
    plain(name + ".kv_norm.weight", {dim});
  }
  void convolution(const std::string& name, int64_t channels, int64_t taps, bool bias) {
    plain(name + ".conv1d.weight", {channels, 1, taps});
    if (bias) plain(name + ".conv1d.bias", {channels});
  }
  void state_layer(const std::string& name, const DeltaForm& f) {
    const int64_t keys = f.keys(), values = f.values();
    plain(name + ".A_log", {f.value_heads});
    plain(name + ".dt_bias", {f.value_heads});
    if (f.all_apart) return delta_apart(name, f);
    convolution(name, 2 * keys + values, f.taps, false);
    if (f.apart) {
      linear(name + ".in_proj_qkv", hidden_, 2 * keys + values, false);
      linear(name + ".in_proj_z", hidden_, values, false);
      for (const char* each : {".in_proj_b", ".in_proj_a"}) linear(name + each, hidden_, f.value_heads, false);
    } else {
      linear(name + ".in_proj_qkvz", hidden_, 2 * (keys + values), false);
      linear(name + ".in_proj_ba", hidden_, 2 * f.value_heads, false);
    }
    plain(name + ".norm.weight", {f.value_dim});
    linear(name + ".out_proj", values, hidden_, false);
  }
  void delta_apart(const std::string& name, const DeltaForm& f) {
    for (const char* each : {".q", ".k"}) linear(str(name, each, "_proj"), hidden_, f.keys(), false);
    for (const char* each : {".v", ".g"}) linear(str(name, each, "_proj"), hidden_, f.values(), false);
    for (const char* each : {".b", ".a"}) linear(str(name, each, "_proj"), hidden_, f.value_heads, false);
    for (const char* each : {".q", ".k", ".v"})
      plain(str(name, each, "_conv1d.weight"), {each[1] == 'v' ? f.values() : f.keys(), 1, f.taps});
    plain(name + ".o_norm.weight", {f.value_dim});
    linear(name + ".o_proj", f.values(), hidden_, false);
  }
  void state_layer(const std::string& name, const MambaForm& f) {
    for (const char* each : {".A_log", ".D", ".dt_bias"}) plain(name + each, {f.heads});
    convolution(name, f.mixed(), f.taps, f.conv_bias);
    linear(name + ".in_proj", hidden_, f.inner() + f.mixed() + f.heads, f.in_bias);
    if (f.norm != MambaForm::Norm::None) plain(name + ".norm.weight", {f.inner()});
    linear(name + ".out_proj", f.inner(), hidden_, f.out_bias);
  }
  void state_layer(const std::string& name, const LightningForm& f) {
    const int64_t width = f.heads * f.head_dim;
    linear(name + ".qkv_proj", hidden_, 3 * width, false);
    linear(name + ".output_gate", hidden_, width, false);
    linear(name + ".out_proj", width, hidden_, false);
    plain(name + ".norm.weight", {width});
  }
  void state_layer(const std::string& name, const TurnedLightningForm& f) {
    linear(name + ".qkv_proj", hidden_, 3 * f.width(), f.qkv_bias);
    for (const char* each : {".q_norm.weight", ".k_norm.weight"})
      if (f.qk_norm) plain(name + each, {f.head_dim});
    linear(name + ".g_proj", hidden_, f.width(), false);
    plain(name + ".g_norm.weight", {f.width()});
    linear(name + ".o_proj", f.width(), hidden_, f.out_bias);
  }
  void state_layer(const std::string& name, const SelectiveForm& f) {
    plain(name + ".A_log", {f.inner, f.state});
    plain(name + ".D", {f.inner});
    convolution(name, f.inner, f.taps, f.conv_bias);
    linear(name + ".in_proj", hidden_, 2 * f.inner, f.bias);
    linear(name + ".x_proj", f.inner, f.rank + 2 * f.state, false);
    linear(name + ".dt_proj", f.rank, f.inner, true);
    linear(name + ".out_proj", f.inner, hidden_, f.bias);
    if (f.norm != SelectiveForm::Norm::Weighed) return;
    plain(name + ".dt_layernorm.weight", {f.rank});
    for (const char* each : {".b_layernorm.weight", ".c_layernorm.weight"}) plain(name + each, {f.state});
  }
  void state_layer(const std::string& name, const ConvForm& f) {
    plain(name + ".conv.weight", {f.width, 1, f.taps});
    if (f.bias) plain(name + ".conv.bias", {f.width});
    linear(name + ".in_proj", hidden_, 3 * f.width, f.bias);
    linear(name + ".out_proj", f.width, hidden_, f.bias);
  }
  void state_layer(const std::string& name, const KimiDeltaForm& f) {
    plain(name + ".A_log", f.at_once ? std::vector<int64_t>{f.heads} : std::vector<int64_t>{1, 1, f.heads, 1});
    plain(name + ".dt_bias", {f.width()});
    for (const char* each : {".q_proj", ".k_proj", ".v_proj"}) linear(name + each, hidden_, f.width(), false);
    for (const char* each : {".q_conv1d", ".k_conv1d", ".v_conv1d"})
      plain(str(name, each, ".weight"), {f.width(), 1, f.taps});
    for (const char* each : {".f", ".g"}) {
      if (f.at_once) {
        linear(str(name, each, "_proj"), hidden_, f.width(), false);
        continue;
      }
      linear(str(name, each, "_a_proj"), hidden_, f.head_dim, false);
      linear(str(name, each, "_b_proj"), f.head_dim, f.width(), false);
    }
    linear(name + ".b_proj", hidden_, f.heads, false);
    plain(name + ".o_norm.weight", {f.head_dim});
    linear(name + ".o_proj", f.width(), hidden_, false);
  }
  void state_layer(const std::string& name, const FadingForm& f) {
    const int64_t each = f.width / f.blocks;
    plain(name + ".rg_lru.recurrent_param", {f.width});
    for (const char* gate : {".rg_lru.input_gate", ".rg_lru.recurrent_gate"}) {
      plain(str(name, gate, "_weight"), {f.blocks, each, each});
      plain(str(name, gate, "_bias"), {f.blocks, each});
    }
    for (const char* in : {".linear_y", ".linear_x"}) linear(name + in, hidden_, f.width, true);
    linear(name + ".linear_out", f.width, hidden_, true);
    plain(name + ".conv_1d.weight", {f.width, 1, f.taps});
    plain(name + ".conv_1d.bias", {f.width});
  }
  void feed_forward(const std::string& name, const DenseSpec& dense) {
    const FeedForwardNames names = named(dense.kind, dense.names);
    const int64_t up = dense.kind == FeedForwardKind::FusedGate ? 2 * dense.ffn : dense.ffn;
    if (dense.kind == FeedForwardKind::Gated) linear(str(name, ".", names.gate), hidden_, dense.ffn, dense.bias);
    linear(str(name, ".", names.up), hidden_, up, dense.bias);
    linear(str(name, ".", names.down), dense.ffn, hidden_, dense.bias || dense.down_bias);
    if (spec_.act == Activation::Xielu) xielu(name + ".act_fn");
  }
  void xielu(const std::string& name) {
    for (const char* each : {".alpha_p", ".alpha_n", ".beta", ".eps"}) plain(name + each, {1});
  }
  void router_numbers(const std::string& name, const MixtureSpec& m) {
    if (!m.router.own_numbers) return;
    const std::string router = m.names.router, beside = str(name, ".", router.substr(0, router.rfind('.') + 1));
    plain(beside + "scale", {hidden_});
    plain(beside + "per_expert_scale", {m.experts});
  }
  void mixture(const std::string& layer, const MixtureSpec& m) {
    const MixtureNames& names = m.names;
    const std::string name = *names.block ? str(layer, ".", names.block) : layer;
    if (names.correction)
      plain(str(name, ".", names.correction), names.correction_rows > 0
                                                  ? std::vector<int64_t>{names.correction_rows, m.experts + m.idle}
                                                  : std::vector<int64_t>{m.experts + m.idle});
    if (names.by_word) plain(str(name, ".", names.by_word), {shape_.vocab, m.per_token});
    router_numbers(name, m);
    if (names.bias) plain(str(name, ".", names.bias), {hidden_});
    linear(str(name, ".", names.router), hidden_, m.experts + m.idle, names.router_bias);
    const std::string experts = names.stacked_gate_up ? name : str(name, ".", names.experts);
    const int64_t read = m.latent > 0 ? m.latent : hidden_;
    const char* const own_name = m.gated ? "gate_up_proj" : "up_proj";
    plain(str(experts, ".", names.stacked_gate_up ? names.stacked_gate_up : own_name),
          names.stacked_up        ? std::vector<int64_t>{m.experts, m.ffn, read}
          : names.stacked_gate_up ? std::vector<int64_t>{m.experts, 2 * m.ffn, read}
          : m.gated               ? std::vector<int64_t>{m.experts, 2, m.ffn, read}
                                  : std::vector<int64_t>{m.experts, m.ffn, read});
    params_.back().stacked = true;
    if (!names.stacked_gate_up) params_.back().pieces = {names.up};
    if (!names.stacked_gate_up && m.gated) params_.back().pieces = {names.gate, names.up};
    plain(str(experts, ".", names.stacked_down ? names.stacked_down : "down_proj"), {m.experts, read, m.ffn});
    params_.back().stacked = true;
    if (!names.stacked_down) params_.back().pieces = {names.down};
    if (names.stacked_up) {
      plain(str(experts, ".", names.stacked_up), {m.experts, m.ffn, read});
      params_.back().stacked = true;
    }
    if (m.clamp > 0) {
      plain(str(experts, ".", names.stacked_gate_up, "_bias"), {m.experts, 2 * m.ffn});
      plain(str(experts, ".", names.stacked_down, "_bias"), {m.experts, hidden_});
    }
    if (m.latent > 0) {
      linear(name + ".fc1_latent_proj", hidden_, m.latent, false);
      linear(name + ".fc2_latent_proj", m.latent, hidden_, false);
    }
    if (m.media_ffn > 0) mixture(layer, m.of_media());
    if (m.shared_ffn == 0) return;
    feed_forward(str(name, ".", names.shared),
                 {.ffn = m.shared_ffn, .kind = names.shared_kind, .names = names.of_shared});
    if (names.shared_is_gated) linear(str(name, ".", names.shared, "_gate"), hidden_, 1, false);
  }

  const DecoderSpec& spec_;
  const ModelShape& shape_;
  const int64_t hidden_;
  std::vector<ParamFacts>& params_;
};

}  // namespace

std::vector<ParamFacts> parameters_of(const DecoderSpec& spec) {
  std::vector<ParamFacts> params;
  Listing(spec, params).all();
  return params;
}

}  // namespace apus
