// SPDX-License-Identifier: Apache-2.0
// RMS norm by the vendor's operators.
#include <ATen/TensorOperators.h>

#include "devices/ascend/ops.h"
#include "devices/vendor_op.h"
#include "tensor/compat.h"

namespace apus::ascend {

namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  static const VendorOp op("npu::npu_rms_norm");
  return tensor(op({x, weight, eps})[0]);
}

Pair add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps) {
  static const VendorOp op("npu::npu_add_rms_norm");
  const auto out = op({x, delta, weight, eps});  // y, 1 / rms, sum
  return {tensor(out[2]), tensor(out[0])};
}

// Our forward keeps no statistics: one more forward pass of the norm costs less than keeping them for every layer.
Pair backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, double eps, bool need_weight) {
  static const VendorOp forward("npu::npu_rms_norm"), op("npu::npu_rms_norm_backward");
  const auto out = op({grad.to(x.scalar_type()), x, weight, forward({x, weight, eps})[1]});
  return {tensor(out[0]), need_weight ? tensor(out[1]).to(weight.scalar_type()) : at::Tensor()};
}

Pair add_backward(const OptionalTensor& grad_sum, const at::Tensor& grad_y, const at::Tensor& sum, const at::Tensor& weight, double eps, bool need_weight) {
  auto [dx, dweight] = backward(grad_y, sum, weight, eps, need_weight);
  return {grad_sum.has_value() ? dx + *grad_sum : dx, dweight};
}

}  // namespace

std::vector<NativeOp> norm_ops() {
  const std::vector<std::string> both{"npu::npu_rms_norm", "npu::npu_rms_norm_backward"};
  return {native<rms_norm>("rms_norm", {"npu::npu_rms_norm"}), native<add_rms_norm>("add_rms_norm", {"npu::npu_add_rms_norm"}),
          native<backward>("rms_norm_backward", both), native<add_backward>("add_rms_norm_backward", both)};
}

}  // namespace apus::ascend
