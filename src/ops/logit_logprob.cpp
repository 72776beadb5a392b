// SPDX-License-Identifier: Apache-2.0
#include "ops/logit_logprob.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <torch/library.h>

#include "ops/op.h"

namespace apus::ops {
namespace {

at::Tensor of_logits(const at::Tensor& logits, const at::Tensor& label, double temperature) {
  const at::Tensor scaled = widen(logits) / temperature;
  return scaled.gather(1, label.unsqueeze(1)).squeeze(1) - at::logsumexp(scaled, -1);
}

at::Tensor of_logits_shape(const at::Tensor& logits, const at::Tensor& label, double) {
  return at::empty(label.sizes(), logits.options().dtype(wide_type(logits)));
}

}  // namespace

at::Tensor logit_logprob(const at::Tensor& logits_RV, const at::Tensor& label_R, double temperature) {
  static const auto op = handle<decltype(of_logits)>("apus::logit_logprob");
  const BelowAutograd guard;
  return op.call(logits_RV, label_R, temperature);
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) { m.def("logit_logprob(Tensor logits, Tensor label, float temperature) -> Tensor"); }
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) { m.impl("logit_logprob", apus::ops::of_logits); }
TORCH_LIBRARY_IMPL(apus, Meta, m) { m.impl("logit_logprob", apus::ops::of_logits_shape); }
