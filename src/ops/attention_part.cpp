// SPDX-License-Identifier: Apache-2.0
// The operators are those of attention.cpp, but that a device whose log-sum-exp lies in an order of its own gives and
// takes it as [N, T] here.
#include "ops/attention_part.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>
#include <torch/library.h>

#include "ops/attention_signature.h"
#include "ops/op.h"

namespace apus::ops {
namespace {

using namespace attention_signature;

Pair forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& cu_q,
             const at::Tensor& cu_k, int64_t max_q, int64_t max_k, double scale, bool causal, int64_t window,
             double softcap, const OptionalTensor& sinks) {
  static const auto op = handle<Forward>("apus::attention");
  return op.call(q, k, v, cu_q, cu_k, max_q, max_k, scale, causal, window, softcap, sinks);
}

Triple backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                const at::Tensor& out, const at::Tensor& lse, const at::Tensor& cu_q, const at::Tensor& cu_k,
                int64_t max_q, int64_t max_k, double scale, bool causal, int64_t window, double softcap,
                const OptionalTensor& sinks) {
  static const auto op = handle<Backward>("apus::attention_backward");
  return op.call(grad, q, k, v, out, lse, cu_q, cu_k, max_q, max_k, scale, causal, window, softcap, sinks);
}

}  // namespace

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
  auto [dq, dk, dv] = op.call(grad_TNH, q_TNH, k_TKH, v_TKH, whole.out_TNH, whole.lse_NT, runs.cu_q, runs.cu_k,
                              runs.max_q, runs.max_k, rule.scale, rule.mask.causal, rule.mask.window, rule.softcap,
                              maybe(rule.sinks_N));
  return {dq, dk, dv};
}

at::Tensor sinks_gradient(const at::Tensor& grad_TNH, const Attended& whole, const at::Tensor& sinks_N) {
  const at::Tensor delta_NT = (widen(whole.out_TNH) * widen(grad_TNH)).sum(-1).t();
  return -(at::exp(widen(sinks_N).unsqueeze(1) - whole.lse_NT) * delta_NT).sum(1).to(sinks_N.scalar_type());
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  m.def(
      "attention_part(Tensor q, Tensor k, Tensor v, Tensor cu_q, Tensor cu_k, int max_q, int max_k, float scale, bool "
      "causal, int window, float softcap, Tensor? sinks) -> (Tensor, Tensor)");
  m.def(
      "attention_part_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor cu_q, Tensor "
      "cu_k, int max_q, int max_k, float scale, bool causal, int window, float softcap, Tensor? sinks) -> (Tensor, "
      "Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) {
  m.impl("attention_part", apus::ops::forward);
  m.impl("attention_part_backward", apus::ops::backward);
}
