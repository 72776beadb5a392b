// SPDX-License-Identifier: Apache-2.0
// Rotary embedding, halves convention: element i of a head turns with element R + i. Computed in f32, rounded once.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "base/error.h"
#include "ops/op.h"
#include "ops/ops.h"

namespace apus::ops {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;

at::Tensor turn(const at::Tensor& x_TNH, const at::Tensor& cos_T1R, const at::Tensor& sin_T1R) {
  const int64_t r = cos_T1R.size(-1), rest = x_TNH.size(-1) - 2 * r;
  require(rest >= 0, Fault::Bug, "rope: ", 2 * r, " rotated elements in heads of ", x_TNH.size(-1));
  const at::Tensor x = widen(x_TNH);
  const at::Tensor first = x.narrow(-1, 0, r), second = x.narrow(-1, r, r);
  return at::cat({first * cos_T1R - second * sin_T1R, second * cos_T1R + first * sin_T1R, x.narrow(-1, 2 * r, rest)},
                 -1)
      .to(x_TNH.scalar_type());
}

Pair forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos, const at::Tensor& sin, bool inverse) {
  const at::Tensor c = cos.unsqueeze(1).to(wide_type(q)), s = sin.unsqueeze(1).to(wide_type(q)),
                   signed_s = inverse ? -s : s;
  return {turn(q, c, signed_s), turn(k, c, signed_s)};
}

Pair shape(const at::Tensor& q, const at::Tensor& k, const at::Tensor&, const at::Tensor&, bool) {
  return {at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options())};
}

const auto& rope_op() {
  static const auto op = handle<decltype(forward)>("apus::rope");
  return op;
}

struct Rope : torch::autograd::Function<Rope> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& q,
                                                const at::Tensor& k, const at::Tensor& cos, const at::Tensor& sin,
                                                bool inverse) {
    const BelowAutograd guard;
    ctx->save_for_backward({cos, sin});
    ctx->saved_data["inverse"] = inverse;
    auto [turned_q, turned_k] = rope_op().call(q, k, cos, sin, inverse);
    return {turned_q, turned_k};
  }
  // A rotation's gradient is the rotation back.
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    const BelowAutograd guard;
    const auto saved = ctx->get_saved_variables();
    auto [dq, dk] = rope_op().call(grad[0], grad[1], saved[0], saved[1], !ctx->saved_data["inverse"].toBool());
    return {dq, dk, {}, {}, {}};
  }
};

Pair autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos, const at::Tensor& sin, bool inverse) {
  if (any_requires_grad(q, k)) {
    const auto out = Rope::apply(q, k, cos, sin, inverse);
    return {out[0], out[1]};
  }
  const BelowAutograd guard;
  return rope_op().call(q, k, cos, sin, inverse);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> rope(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& cos_TR,
                                        const at::Tensor& sin_TR) {
  return rope_op().call(q_TNH, k_TKH, cos_TR, sin_TR, /*inverse=*/false);
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // cos, sin [T, R] f32 (or f64); inverse turns backwards, which is also the gradient.
  m.def("rope(Tensor q, Tensor k, Tensor cos, Tensor sin, bool inverse) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) { m.impl("rope", apus::ops::forward); }
TORCH_LIBRARY_IMPL(apus, Meta, m) { m.impl("rope", apus::ops::shape); }
TORCH_LIBRARY_IMPL(apus, Autograd, m) { m.impl("rope", apus::ops::autograd); }
