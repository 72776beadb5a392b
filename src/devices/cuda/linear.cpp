// SPDX-License-Identifier: Apache-2.0
// Neighbouring layers (q, k, v; gate, up) as one product, and logits in f32 from products in a narrow type.
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>

#include "devices/cuda/ops.h"
#include "devices/vendor_op.h"
#include "ops/op.h"

namespace apus::cuda {

namespace {

using Wide = at::Tensor(const at::Tensor&, const at::Tensor&, const OptionalTensor&);

// A packed weight is the weight itself, or several on top of each other.
at::Tensor pack_linear(at::TensorList weights, bool) {
  return weights.size() == 1 ? weights[0].detach() : at::cat(weights, 0);
}

at::Tensor packed_linear(const at::Tensor& x, const at::Tensor& packed, const OptionalTensor& bias, int64_t) {
  return at::linear(x, packed, bias);
}

// cuBLAS gives its f32 sums where libtorch can ask for them (2.8 and later).
at::Tensor wide_linear(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias) {
  static const VendorOp mm("aten::mm.dtype");
  static const bool there = mm.present(c10::DispatchKey::CUDA);
  const bool narrow = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
  if (!there || !narrow || weight.scalar_type() != x.scalar_type()) {
    static const auto reference = ops::handle<Wide>("apus::wide_linear");
    return ops::call_reference(reference, x, weight, bias);
  }
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  const at::Tensor y = tensor(mm({x.reshape({-1, x.size(-1)}), weight.t(), at::kFloat})[0]).view(sizes);
  return bias.has_value() ? y + *bias : y;
}

}  // namespace

std::vector<OwnOp> linear_ops() {
  return {own<pack_linear>("pack_linear", "cuBLAS"), own<packed_linear>("packed_linear", "cuBLAS"),
          own<wide_linear>("wide_linear", "cuBLAS")};
}

}  // namespace apus::cuda
