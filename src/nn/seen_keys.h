// SPDX-License-Identifier: Apache-2.0
// Attention of one sequence to keys of which each query sees some alone, and the choice of those that it sees.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/step.h"

namespace apus {

namespace ops {
struct AttentionRule;  // ops/ops.h
}

// q [t, N, H], k [u, N or 1, H], v [u, N or 1, V], hidden [t, u] -> [t, N, V]. Of the rule: scale and sinks.
at::Tensor over_seen(const at::Tensor& q_TNH, const at::Tensor& k_UNH, const at::Tensor& v_UNV,
                     const at::Tensor& hidden_TU, const ops::AttentionRule& rule);

// Small heads rate keys for their queries: true for those that are not among the best `chosen`, or come later.
at::Tensor hidden_but_best(const at::Tensor& q_TnD, const at::Tensor& weight_Tn, const at::Tensor& k_KD,
                           const at::Tensor& later_TK, int64_t chosen);

// What training may not ask of attention that looks at chosen tokens.
void require_own_rows(const Step& s);

}  // namespace apus
