// SPDX-License-Identifier: Apache-2.0
// One AdamW step in place (decoupled weight decay, as torch.optim.AdamW computes it). Arithmetic in at least f32,
// whatever the types of the parameter and of the moments.
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include <cmath>

#include "ops/op.h"
#include "ops/ops.h"

namespace apus::ops {
namespace {

void reference(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& v, const OptionalTensor& master,
               double lr, double beta1, double beta2, double eps, double weight_decay, int64_t step,
               double grad_scale) {
  const at::Tensor value = master.has_value() ? *master : param;
  const at::Tensor g = grad.to(wide_type(value)) * grad_scale;
  const at::Tensor mean = widen(m) * beta1 + g * (1 - beta1), square = widen(v) * beta2 + g * g * (1 - beta2);
  const double correct1 = 1 - std::pow(beta1, static_cast<double>(step)),
               correct2 = 1 - std::pow(beta2, static_cast<double>(step));
  const at::Tensor updated =
      widen(value) * (1 - lr * weight_decay) - (lr / correct1) * mean / (square.sqrt() / std::sqrt(correct2) + eps);
  m.copy_(mean);
  v.copy_(square);
  if (master.has_value()) master->copy_(updated);
  param.copy_(updated);
}

void shape(at::Tensor&, const at::Tensor&, at::Tensor&, at::Tensor&, const OptionalTensor&, double, double, double,
           double, double, int64_t, double) {}

}  // namespace

void adamw(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& v, at::Tensor& master,
           const AdamwStep& s) {
  static const auto op = handle<decltype(reference)>("apus::adamw");
  const BelowAutograd guard;
  op.call(param, grad, m, v, maybe(master), s.lr, s.beta1, s.beta2, s.eps, s.weight_decay, s.step, s.grad_scale);
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // master: f32 copy of param that is updated instead, param being rounded from it.
  m.def(
      "adamw(Tensor(a!) param, Tensor grad, Tensor(b!) m, Tensor(c!) v, Tensor(d!)? master, float lr, float beta1, "
      "float beta2, "
      "float eps, float weight_decay, int step, float grad_scale) -> ()");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) { m.impl("adamw", apus::ops::reference); }
TORCH_LIBRARY_IMPL(apus, Meta, m) { m.impl("adamw", apus::ops::shape); }
