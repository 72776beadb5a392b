// SPDX-License-Identifier: Apache-2.0
// One AdamW step in place (decoupled weight decay, as torch.optim.AdamW computes it). Arithmetic in at least f32,
// whatever the types of the parameter and of the moments.
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "ops/op.h"
#include "ops/ops.h"
#include "tensor/dither.h"

namespace apus::ops {
namespace {

void update(at::Tensor param, const at::Tensor& grad, at::Tensor m, at::Tensor v, at::Tensor value, double lr,
            double beta1, double beta2, double eps, double weight_decay, int64_t step, double grad_scale,
            int64_t dither) {
  const at::Tensor g = grad.to(wide_type(value)) * grad_scale;
  const at::Tensor mean = widen(m) * beta1 + g * (1 - beta1), square = widen(v) * beta2 + g * g * (1 - beta2);
  const double correct1 = 1 - std::pow(beta1, static_cast<double>(step)),
               correct2 = 1 - std::pow(beta2, static_cast<double>(step));
  const at::Tensor updated =
      widen(value) * (1 - lr * weight_decay) - (lr / correct1) * mean / (square.sqrt() / std::sqrt(correct2) + eps);
  m.copy_(mean);
  v.copy_(square);
  if (!value.is_same(param)) value.copy_(updated);
  if (dither >= 0 && param.scalar_type() == at::kBFloat16)
    round_stochastic_(param, updated, dither);
  else
    param.copy_(updated);
}

void reference(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& v, const OptionalTensor& master,
               double lr, double beta1, double beta2, double eps, double weight_decay, int64_t step, double grad_scale,
               int64_t dither) {
  constexpr int64_t kChunk = int64_t{1} << 24;  // the temporaries of a whole embedding would be large
  const at::Tensor value = master.has_value() ? *master : param;
  const auto dense = [](const at::Tensor& t) { return t.is_contiguous(); };
  if (param.numel() <= kChunk || !dense(param) || !dense(grad) || !dense(m) || !dense(v) || !dense(value))
    return update(param, grad, m, v, value, lr, beta1, beta2, eps, weight_decay, step, grad_scale, dither);
  for (int64_t begin = 0; begin < param.numel(); begin += kChunk) {
    const auto part = [&](const at::Tensor& t) {
      return t.view(-1).narrow(0, begin, std::min(kChunk, param.numel() - begin));
    };
    const at::Tensor p = part(param);
    update(p, part(grad), part(m), part(v), master.has_value() ? part(*master) : p, lr, beta1, beta2, eps, weight_decay,
           step, grad_scale, dither < 0 ? dither : advanced(dither, begin));
  }
}

void shape(at::Tensor&, const at::Tensor&, at::Tensor&, at::Tensor&, const OptionalTensor&, double, double, double,
           double, double, int64_t, double, int64_t) {}

}  // namespace

void adamw(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& v, at::Tensor& master,
           const AdamwStep& s) {
  static const auto op = handle<decltype(reference)>("apus::adamw");
  const BelowAutograd guard;
  op.call(param, grad, m, v, maybe(master), s.lr, s.beta1, s.beta2, s.eps, s.weight_decay, s.step, s.grad_scale,
          s.stochastic ? s.dither : -1);
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // master: f32 copy of param that is updated instead, param being rounded from it. dither: where the thresholds of
  // stochastic rounding to a bf16 param begin (tensor/dither.h); -1: to nearest.
  m.def(
      "adamw(Tensor(a!) param, Tensor grad, Tensor(b!) m, Tensor(c!) v, Tensor(d!)? master, float lr, float beta1, "
      "float beta2, float eps, float weight_decay, int step, float grad_scale, int dither) -> ()");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) { m.impl("adamw", apus::ops::reference); }
TORCH_LIBRARY_IMPL(apus, Meta, m) { m.impl("adamw", apus::ops::shape); }
