// SPDX-License-Identifier: Apache-2.0
// What attention layers differ in from family to family. No tensor library here; nn/attention.h and
// nn/latent_attention.h compute them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace apus {

// Where queries and keys are normalised: each head for itself, before or after it is turned by its position, or all
// heads as one vector; each head before it is turned, with weights of its own. AloneAfterRope: each head without
// weights, in layers that turn.
enum class QkNorm { None, Head, HeadAfterRope, AllHeads, EachHead, AloneAfterRope };
constexpr bool has_weights(QkNorm kind) { return kind != QkNorm::None && kind != QkNorm::AloneAfterRope; }

// How one matrix makes queries, keys and values: all queries, all keys, all values; for every key-value head its
// queries, its key and its value; for every quarter of the heads its queries, its values, its keys.
enum class Fused { No, Blocks, Groups, Quarters };

struct AttentionForm {
  bool qkv_bias = false, out_bias = false;
  // With qkv_bias, and a matrix for each: keys have one too.
  bool key_bias = true;
  // One matrix makes queries, keys and values, by this name.
  Fused fused = Fused::No;
  const char *fused_name = "qkv_proj", *out_name = "o_proj";
  // Or three do, by these; null: values are what keys are before their norm and turn.
  const char *q_name = "q_proj", *k_name = "k_proj", *v_name = "v_proj";
  // A token looks at those behind it too: an encoder's. A window is then as wide on both sides.
  bool both_ways = false;
  // A score gets a learnt number besides, by how far the key is before or behind the query (Step::distance_BN).
  bool by_distance = false;
  QkNorm qk_norm = QkNorm::None;
  // Their names are q and k with this behind; EachHead: whether each head's weights are a tensor of their own.
  const char* qk_norm_ending = "_norm";
  bool qk_norms_apart = false;
  // Of each head, what a position adds to the score of a key there (alibi); empty: nothing.
  std::vector<double> slopes = {};
  // Above 0: queries, keys and values are kept within it.
  double clip = 0;
  // What products of queries and keys are multiplied by; 0: 1 / sqrt(head_dim).
  double scale = 0;
  // Above 0: scores are bent to softcap * tanh(score / softcap).
  double softcap = 0;
  // Each head has a learnt score besides those of the keys, which takes a share of the softmax: `sinks`.
  bool sinks = false;
  // q_proj makes of each head its query and then a gate, by whose sigmoid the head's result is multiplied.
  bool gated = false;
  // A matrix of this name makes such gates of the input, a number for each that the heads give; null: there is none.
  const char* gate_name = nullptr;
  // It makes one of each head, and softplus takes the sigmoid's place.
  bool gates_heads = false, gates_by_softplus = false;
  // Each head's values are normalised, without weights.
  bool value_norm = false;
  // The size of values; 0: head_dim, which is the most. And what they are multiplied by.
  int64_t value_dim = 0;
  double value_scale = 1;
  // The input and the result are multiplied by these.
  double in_scale = 1, out_scale = 1;
  // Above 0: each token meets `per_token` of so many experts, each of which makes a query for every key-value head, and
  // brings what these see back to the model's width. One matrix makes keys and values: kv_proj.
  int64_t experts = 0, per_token = 0;
};

// How attention chooses the tokens that it looks at.
struct IndexForm {
  int64_t heads = 0, dim = 0, chosen = 0;
  // Of its queries and keys, numbers that turn together are neighbours.
  bool neighbours = false;
  // Those that turn are the last of a head, not the first.
  bool last_turn = false;
  // Of the norm of its keys.
  double eps = 1e-6;
  // The layer whose choice is taken; -1: it chooses itself.
  int64_t taken_of = -1;
};

// Keys and values of all heads are made of one small vector a token, beside a key that turns and that all heads share.
// Queries and keys have `still` numbers that do not turn and then `turned` ones; values have `value`.
struct LatentForm {
  // The width that queries come through; 0: they are made at once.
  int64_t query_rank = 0;
  int64_t rank = 0, still = 0, turned = 0, value = 0;
  // The two inner norms'.
  double eps = 1e-6;
  // The small vector is multiplied by it behind its norm.
  double small_scale = 1;
  // Heads above 0: small heads besides rate all tokens before, and attention looks at the best `chosen` of them. Their
  // keys stand behind the small vector in the cache. They are not trained.
  IndexForm index = {};
  // Per layer, IndexForm::taken_of; empty: every one chooses itself.
  std::vector<int64_t> taken_of = {};
};

// One head of keys, which are values too, for all queries. A layer looks at the tokens in its window, and where it
// pools, at keys besides that are made of several tokens each. Numbers that turn are the last of a head, neighbours
// together. What attention sees is turned back, and groups of heads are brought to `group_rank` numbers each before
// they meet.
struct PooledForm {
  struct Pool {
    // So many become one key; 0: there are none but those of the window.
    int64_t tokens = 0;
    // A key is made of the tokens of the pool before too, by further numbers of theirs; and an index chooses among the
    // keys by smaller ones of its own, which are made likewise.
    bool chosen = false;

    // Of a key's `dim` numbers: those made of a token, values and gates; and the tokens that the next key still needs.
    int64_t made(int64_t dim) const { return (chosen ? 4 : 2) * dim; }
    int64_t kept() const { return (chosen ? 2 : 1) * tokens - 1; }
  };
  // Per layer.
  std::vector<Pool> pools = {};
  int64_t query_rank = 0, turned = 0, groups = 1, group_rank = 0;
  // neighbours, last_turn and taken_of say nothing here.
  IndexForm index = {};

  // All that the pools of a layer make of a token, whose keys have `dim` numbers.
  int64_t made(const Pool& p, int64_t dim) const { return p.made(dim) + (p.chosen ? p.made(index.dim) : 0); }
  // A pooled key with that of the index lies in the cache with the tokens that it is made of,
  // so many numbers with each.
  int64_t beside_token(const Pool& p, int64_t dim) const {
    return p.tokens == 0 ? 0 : (dim + (p.chosen ? index.dim : 0) + p.tokens - 1) / p.tokens;
  }
};

// A key says its position by so many further numbers, which the cache holds too, where there are slopes.
inline constexpr int64_t kPositionNumbers = 8;

// A score may depend on the distance of query and key by one of so many classes.
inline constexpr int64_t kDistanceClasses = 32;

// The name of the norm of queries ("q") or keys ("k") in checkpoints.
inline std::string qk_norm_name(const AttentionForm& form, bool queries) {
  if (form.qk_norm == QkNorm::HeadAfterRope) return queries ? "query_layernorm" : "key_layernorm";
  return (queries ? "q" : "k") + std::string(form.qk_norm_ending);
}

}  // namespace apus
