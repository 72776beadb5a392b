// SPDX-License-Identifier: Apache-2.0
// Names and settings of GGUF files that several families share.
#pragma once

#include "gguf/form.h"
#include "gguf/turns.h"

namespace apus::words {

template <class T>
std::vector<T> both(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Of norms that take the mean off; config.json calls it so.
inline GgufKey mean_eps(const char* config) { return {config, "attention.layer_norm_epsilon", GgufKey::Number}; }

// Norms behind the branches too, under Gemma's names.
inline std::vector<GgufPair> norms_around() {
  return {{"post_attention_layernorm", "post_attention_norm"},
          {"pre_feedforward_layernorm", "ffn_norm"},
          {"post_feedforward_layernorm", "post_ffw_norm"}};
}

// mlp.shared_experts, as DeepSeek calls it, or by another name.
inline std::vector<GgufPair> shared_experts(const std::string& name = "mlp.shared_experts") {
  return {{name + ".gate_proj", "ffn_gate_shexp"},
          {name + ".up_proj", "ffn_up_shexp"},
          {name + ".down_proj", "ffn_down_shexp"}};
}

// Mixtral's, in transformers' older files and in newer ones.
inline std::vector<GgufPair> mixtral_experts(const std::string& block = "block_sparse_moe") {
  return {{block + ".gate", "ffn_gate_inp"},
          {block + ".experts.*.w1", "ffn_gate_exps"},
          {block + ".experts.*.w3", "ffn_up_exps"},
          {block + ".experts.*.w2", "ffn_down_exps"}};
}

// How many experts there are and how many a token meets; and their width.
inline std::vector<GgufKey> experts(const char* count, const char* used = "num_experts_per_tok",
                                    const char* width = "moe_intermediate_size") {
  return {{count, "expert_count"}, {used, "expert_used_count"}, {width, "expert_feed_forward_length"}};
}

// DeepSeek's words, and the router's.
inline std::vector<GgufKey> routed_experts() {
  return both(experts("n_routed_experts"), {{"n_shared_experts", "expert_shared_count"},
                                            {"first_k_dense_replace", "leading_dense_block_count"},
                                            {"n_group", "expert_group_count"},
                                            {"topk_group", "expert_group_used_count"},
                                            {"routed_scaling_factor", "expert_weights_scale", GgufKey::Number},
                                            {"norm_topk_prob", "expert_weights_norm", GgufKey::Flag}});
}

// DeepSeek-V3.2's index below a layer's attention.
std::vector<GgufPair> index_names();
std::vector<GgufKey> index_keys();

// Granite's four numbers.
inline std::vector<GgufKey> multipliers() {
  return {{"attention_multiplier", "attention.scale", GgufKey::Number},
          {"embedding_multiplier", "embedding_scale", GgufKey::Number},
          {"residual_multiplier", "residual_scale", GgufKey::Number},
          {"logits_scaling", "logit_scale", GgufKey::Number}};
}

// DeepSeek's attention: the matrix that makes keys and values of small vectors is two in the file, one of them turned
// in each head; older files have it whole.
std::vector<GgufPair> latent_names();
// And its sizes, which the file has as those of one head for all.
void read_latent(const GgufSays& file, Json& config);
// What sines, and scores twice, are multiplied by where positions are stretched.
void read_latent_yarn(const GgufSays& file, Json& config);

// Mamba-2's matrices below a layer's `block`, and how many groups share keys.
std::vector<GgufPair> mamba_names(const std::string& block);
int64_t mamba_groups(const GgufSizes& sizes);
// Of a model whose layers keep states alone: heads and a feed-forward are said to be none.
void write_without_attention(GgufSettingsWriter& out);

// Gated delta nets: their settings; and Qwen3.5's matrices, whose value heads take turns in the file.
std::vector<GgufKey> delta_net();
std::vector<GgufPair> delta_names();
void read_delta_net(const GgufSays& file, Json& config);
void write_delta_net(const Json& config, GgufSettingsWriter& out);

// Which layers keep tokens is said by their key-value heads, of which others have none.
void read_layers_of_attention(const GgufSays& file, Json& config, const char* attends, const char* other);
void write_layers_of_attention(const Json& config, GgufSettingsWriter& out,
                               const std::function<bool(int64_t)>& attends);
// What layer_types says of a layer.
bool attends(const Json& types, int64_t layer);

inline GgufKey window() { return {"sliding_window", "attention.sliding_window"}; }

// layer_types of a window on every layer for which `slides` says so.
template <class Slides>
Json layer_types(int64_t layers, const Slides& slides) {
  Json types = Json::array();
  for (int64_t i = 0; i < layers; ++i) types.push_back(slides(i) ? "sliding_attention" : "full_attention");
  return types;
}
// The same said layer by layer, where the file does.
inline constexpr const char* kWindowsOfLayers = "attention.sliding_window_pattern";
void read_windows_of_layers(const GgufSays& file, Json& config);
void write_windows_of_layers(const std::vector<int64_t>& windows, GgufSettingsWriter& out);
// Layers that slide turn by settings of their own, which are not stretched (rope_parameters).
void read_turns_of_layers(const GgufSays& file, Json& config);

}  // namespace apus::words
