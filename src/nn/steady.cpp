// SPDX-License-Identifier: Apache-2.0
#include "nn/steady.h"

#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>

#include "device/device.h"

namespace apus {

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

}  // namespace apus
