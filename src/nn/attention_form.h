// SPDX-License-Identifier: Apache-2.0
// What attention layers differ in from family to family. No tensor library here; nn/attention.h and
// nn/latent_attention.h compute them.
#pragma once

#include <cstdint>

namespace apus {

// Where queries and keys are normalised: each head for itself, before or after it is turned by its position, or all
// heads as one vector.
enum class QkNorm { None, Head, HeadAfterRope, AllHeads };

struct AttentionForm {
  bool qkv_bias = false, out_bias = false;
  // One matrix, qkv_proj, makes queries, keys and values.
  bool fused = false;
  QkNorm qk_norm = QkNorm::None;
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
  // The input and the result are multiplied by these.
  double in_scale = 1, out_scale = 1;
};

// Keys and values of all heads are made of one small vector a token, beside a key that turns and that all heads share.
// Queries and keys have `still` numbers that do not turn and then `turned` ones; values have `value`.
struct LatentForm {
  // The width that queries come through; 0: they are made at once.
  int64_t query_rank = 0;
  int64_t rank = 0, still = 0, turned = 0, value = 0;
  // The two inner norms'.
  double eps = 1e-6;
};

// The name of the norm of queries ("q") or keys ("k") in checkpoints.
constexpr const char* qk_norm_name(QkNorm kind, bool queries) {
  if (kind == QkNorm::HeadAfterRope) return queries ? "query_layernorm" : "key_layernorm";
  return queries ? "q_norm" : "k_norm";
}

}  // namespace apus
