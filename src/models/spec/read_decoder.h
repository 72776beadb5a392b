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
  bool tied = false;
  double eps = 1e-6;
  RopeDefaults rope = {};
};

// The file's settings with those of a family's own words under the usual ones too, where these are not there.
Json in_usual_words(const Config& config, const std::vector<std::pair<const char*, const char*>>& own_and_usual);

// Every layer is dense.
DecoderSpec read_decoder(const Config& config, const FamilyDefaults& defaults);

// A bound that numbers are bent to; 0: there is none, as where the file says null. `unsaid`: where it lacks the key.
double read_softcap(const Config& config, const char* key, double unsaid);
// num_experts, or num_local_experts: transformers 5 writes either. One of them must be there.
int64_t read_expert_count(const Config& config);

// Every layer's feed-forward is of this kind.
void use_kind(DecoderSpec& spec, FeedForwardKind kind, bool bias = false);
// The matrices of every layer's feed-forward have these names.
void use_names(DecoderSpec& spec, FeedForwardNames names);
// Positions are told by these slopes, one a head, and nothing turns. The usual ones: of a power of two heads, the
// powers of 2^(-8 / heads); of the heads beyond one, every second of twice as many.
void use_slopes(DecoderSpec& spec, std::vector<double> slopes);
std::vector<double> usual_slopes(int64_t heads);
// Every layer's feed-forward is a plain one with these names.
void use_plain(DecoderSpec& spec, FeedForwardNames names, bool bias);
// What branches give is normalised before it is added, and nothing else is.
void norms_after_branches(DecoderSpec& spec);
// Granite's numbers: embedding_multiplier, attention_multiplier, residual_multiplier, logits_scaling.
void use_multipliers(const Config& config, DecoderSpec& spec);

// DeepSeek's attention: q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim.
void use_latent_attention(const Config& config, DecoderSpec& spec, bool neighbours,
                          const LatentForm& unsaid = {
                              .query_rank = 1536, .rank = 512, .still = 128, .turned = 64, .value = 128});
// And an index that chooses what it looks at: index_n_heads (where the file leaves it out, `heads`), index_head_dim,
// index_topk.
void use_index(const Config& config, DecoderSpec& spec, int64_t heads, bool neighbours);
// What read_decoder takes for the heads' size then: that of what turns.
int64_t latent_turned(const Config& config);

// A second set of rotary settings, for the layers that slide.
void turn_sliding_layers(DecoderSpec& spec, RopeSpec rope);
// Layers of which `turns` says so are told positions, the others not.
void turn_only(DecoderSpec& spec, const std::function<bool(size_t layer)>& turns);

// The last num_kv_shared_layers read keys and values of the last layer of their kind, sliding or full, before them.
// heads_of and windows are read already; `unsaid`: how many where the file lacks the key.
void share_last_keys(const Config& config, DecoderSpec& spec, int64_t unsaid);

// The layers for which `at` says so become mixtures; the others stay dense.
void use_experts(const Config& config, DecoderSpec& spec, const MixtureSpec& mixture,
                 const std::function<bool(int64_t layer)>& at);
// Those that mlp_layer_types calls sparse; where the file has none, all from first_k_dense_replace on.
std::function<bool(int64_t layer)> sparse_layers(const Config& config, int64_t layers, int64_t dense_first);
// The router that DeepSeek-V3 and its like have: sigmoids, a correction for the choice, groups.
RouterForm read_sigmoid_router(const Config& config, double scale, bool normalise = true);
// Their whole mixture: n_routed_experts, num_experts_per_tok, moe_intermediate_size, n_shared_experts of that width and
// that router. `unsaid`: where the file leaves them out; 0 experts: it must say how many.
struct RoutedDefaults {
  int64_t experts = 0, per_token = 0, ffn = 0, shared = 1;
  double scale = 1;
  bool normalise = true;
  int64_t groups = 1, open_groups = 1;
};
MixtureSpec read_routed_experts(const Config& config, const RoutedDefaults& unsaid);
// sliding_window_pattern: a number, or a word like LLLG; every so many-th layer is full.
int64_t read_full_every(const Config& config);
// Those of a Qwen mixture: every decoder_sparse_step-th one that mlp_only_layers does not name;
// none where there are no experts.
void use_qwen_experts(const Config& config, DecoderSpec& spec, const MixtureSpec& mixture);

}  // namespace apus
