// SPDX-License-Identifier: Apache-2.0
// silu(gate) * up. Either may be a slice of a wider tensor.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/op.h"
#include "ops/ops.h"

namespace apus::ops {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;

// The rounding to the inputs' type between silu and the product is HuggingFace's.
at::Tensor forward(const at::Tensor& gate, const at::Tensor& up) {
  const at::Tensor activated = has_matmul(gate) ? at::silu(gate) : at::silu(widen(gate)).to(gate.scalar_type());
  return (activated * up).contiguous();
}

Pair backward(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up) {
  const at::Tensor g = widen(gate), wide_grad = widen(grad), s = at::sigmoid(g);
  const at::Tensor dgate = wide_grad * widen(up) * s * (1 + g * (1 - s));
  return {dgate.to(gate.scalar_type()), (wide_grad * (g * s)).to(up.scalar_type())};
}

at::Tensor forward_shape(const at::Tensor& gate, const at::Tensor&) { return at::empty(gate.sizes(), gate.options()); }
Pair backward_shape(const at::Tensor&, const at::Tensor& gate, const at::Tensor& up) {
  return {at::empty(gate.sizes(), gate.options()), at::empty(up.sizes(), up.options())};
}

const auto& swiglu_op() {
  static const auto op = handle<decltype(forward)>("apus::swiglu");
  return op;
}

struct Swiglu : torch::autograd::Function<Swiglu> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& gate, const at::Tensor& up) {
    const BelowAutograd guard;
    ctx->save_for_backward({gate, up});
    return swiglu_op().call(gate, up);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    static const auto op = handle<decltype(ops::backward)>("apus::swiglu_backward");
    const BelowAutograd guard;
    const auto saved = ctx->get_saved_variables();
    auto [dgate, dup] = op.call(grad[0], saved[0], saved[1]);
    return {dgate, dup};
  }
};

at::Tensor autograd(const at::Tensor& gate, const at::Tensor& up) {
  if (any_requires_grad(gate, up)) return Swiglu::apply(gate, up);
  const BelowAutograd guard;
  return swiglu_op().call(gate, up);
}

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_TF, const at::Tensor& up_TF) { return swiglu_op().call(gate_TF, up_TF); }

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  m.def("swiglu(Tensor gate, Tensor up) -> Tensor");
  m.def("swiglu_backward(Tensor grad, Tensor gate, Tensor up) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) {
  m.impl("swiglu", apus::ops::forward);
  m.impl("swiglu_backward", apus::ops::backward);
}
TORCH_LIBRARY_IMPL(apus, Meta, m) {
  m.impl("swiglu", apus::ops::forward_shape);
  m.impl("swiglu_backward", apus::ops::backward_shape);
}
TORCH_LIBRARY_IMPL(apus, Autograd, m) { m.impl("swiglu", apus::ops::autograd); }
