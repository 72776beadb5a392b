// SPDX-License-Identifier: Apache-2.0
// The operators stand with attention's (attention.cpp), whose bodies are theirs on all devices but those whose
// log-sum-exp lies in an order of its own.
#include "ops/attention_part.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>

#include "ops/attention_signature.h"
#include "ops/op.h"

namespace apus::ops {
using namespace attention_signature;

Attended attention_part(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                        const PackedRuns& runs, const AttentionRule& rule) {
  static const auto op = handle<Forward>("apus::attention_part");
  const BelowAutograd guard;
  auto [out, lse] = op.call(q_TNH, k_TKH, v_TKH, runs.cu_q, runs.cu_k, runs.max_q, runs.max_k, rule.scale,
                            rule.mask.causal, rule.mask.window, rule.softcap, maybe(rule.sinks_N));
  return {out, lse};
}

AttentionGradient attention_part_gradient(const at::Tensor& grad_TNH, const at::Tensor& q_TNH, const at::Tensor& k_TKH,
                                          const at::Tensor& v_TKH, const Attended& whole, const PackedRuns& runs,
                                          const AttentionRule& rule) {
  static const auto op = handle<Backward>("apus::attention_part_backward");
  const BelowAutograd guard;
  auto [dq, dk, dv] =
      op.call(grad_TNH, q_TNH, k_TKH, v_TKH, whole.out_TNH, whole.lse_NT, runs.cu_q, runs.cu_k, runs.max_q, runs.max_k,
              rule.scale, rule.mask.causal, rule.mask.window, rule.softcap, maybe(rule.sinks_N));
  return {dq, dk, dv};
}

at::Tensor sinks_gradient(const at::Tensor& grad_TNH, const Attended& whole, const at::Tensor& sinks_N) {
  const at::Tensor delta_NT = (widen(whole.out_TNH) * widen(grad_TNH)).sum(-1).t();
  return -(at::exp(widen(sinks_N).unsqueeze(1) - whole.lse_NT) * delta_NT).sum(1).to(sinks_N.scalar_type());
}

}  // namespace apus::ops
