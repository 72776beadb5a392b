// SPDX-License-Identifier: Apache-2.0
#include "nn/steady.h"

#include <ATen/ops/expm1.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/device.h"

namespace apus {

namespace {
// Wrapped, as it is no input that a gradient could belong to.
struct KnownValue {
  at::Tensor value;
};

struct ValueByAnotherWay : torch::autograd::Function<ValueByAnotherWay> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor&, const KnownValue& known) {
    return known.value;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list grad) {
    return {grad[0], {}};
  }
};
}  // namespace

at::Tensor with_gradient_of(const at::Tensor& made, const at::Tensor& value) {
  return made.requires_grad() ? ValueByAnotherWay::apply(made, KnownValue{value}) : value;
}

namespace {
template <class F>
at::Tensor by_way_of_f64(const at::Tensor& x, const F& f) {
  return kind_of(x.device()).supports(at::kDouble) ? f(x.to(at::kDouble)).to(x.scalar_type()) : f(x);
}
}  // namespace

at::Tensor steady_softplus(const at::Tensor& x) {
  return by_way_of_f64(x, [](const at::Tensor& each) { return at::softplus(each); });
}
at::Tensor steady_sigmoid(const at::Tensor& x) {
  return by_way_of_f64(x, [](const at::Tensor& each) { return at::sigmoid(each); });
}
at::Tensor steady_expm1(const at::Tensor& x) {
  return by_way_of_f64(x, [](const at::Tensor& each) { return at::expm1(each); });
}

}  // namespace apus
