// SPDX-License-Identifier: Apache-2.0
// Attention to some of the keys that queries see, for who joins what several such calls give (nn/ring_attention.h). No
// gradient is recorded.
#pragma once

#include "ops/ops.h"

namespace apus::ops {

// Cumulative lengths [S + 1] int32 of queries and keys, and the longest of each.
struct PackedRuns {
  at::Tensor cu_q, cu_k;
  int64_t max_q = 0, max_k = 0;
};

// As attention(); on every device lse is [N, T] in the order of queries.
Attended attention_part(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                        const PackedRuns& runs, const AttentionRule& rule);

// What these keys have in the gradients, where `whole` is attention to all keys.
struct AttentionGradient {
  at::Tensor q_TNH, k_TKH, v_TKH;
};
AttentionGradient attention_part_gradient(const at::Tensor& grad_TNH, const at::Tensor& q_TNH, const at::Tensor& k_TKH,
                                          const at::Tensor& v_TKH, const Attended& whole, const PackedRuns& runs,
                                          const AttentionRule& rule);

// Each head's sink has in every query's sum the share exp(sink - lse), and pulls nothing but that sum. -> [N]
at::Tensor sinks_gradient(const at::Tensor& grad_TNH, const Attended& whole, const at::Tensor& sinks_N);

}  // namespace apus::ops
