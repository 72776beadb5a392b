// SPDX-License-Identifier: Apache-2.0
// The flash attention inside libtorch, called by name: its arguments differ between versions, and only those that know
// a window (2.5 and later) are used.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/attention_signature.h"
#include "tensor/compat.h"

namespace apus::cuda {

bool has_flash();
// Two bytes a number, heads of up to 256, and nothing that bends scores.
bool flash_takes(const at::Tensor& q, int64_t value_size, bool causal, int64_t window, double softcap,
                 const OptionalTensor& sinks);

// Cumulative lengths [S + 1] int32, and the longest run of each.
struct Runs {
  at::Tensor cu_q, cu_k;
  int64_t max_q, max_k;
};
struct FlashRule {
  double scale;
  bool causal;
  int64_t window;
};
// {out, the operator's own log-sum-exp, in a layout of its version: [N, T] or [S, N, longest]}
ops::attention_signature::Pair flash_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const Runs& runs, const FlashRule& rule);
ops::attention_signature::Triple flash_backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                                                const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse,
                                                const Runs& runs, const FlashRule& rule);

}  // namespace apus::cuda
