// SPDX-License-Identifier: Apache-2.0
// What attention layers differ in from family to family. No tensor library here; nn/attention.h computes them.
#pragma once

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
};

// The name of the norm of queries ("q") or keys ("k") in checkpoints.
constexpr const char* qk_norm_name(QkNorm kind, bool queries) {
  if (kind == QkNorm::HeadAfterRope) return queries ? "query_layernorm" : "key_layernorm";
  return queries ? "q_norm" : "k_norm";
}

}  // namespace apus
