// SPDX-License-Identifier: Apache-2.0
// Neighbouring layers (q, k, v; gate, up) as one product, logits in f32 from products in a narrow type, and products of
// a few rows, which are bound by how fast the weight is read.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "devices/cuda/ops.h"
#include "devices/cuda/typed.h"
#include "devices/vendor_op.h"
#include "ops/op.h"

namespace apus::cuda {

namespace {

using Wide = at::Tensor(const at::Tensor&, const at::Tensor&, const OptionalTensor&);

// A packed weight is the weight itself, or several on top of each other.
at::Tensor pack_linear(at::TensorList weights, bool) {
  return weights.size() == 1 ? weights[0].detach() : at::cat(weights, 0);
}

constexpr int64_t kThin = 2;  // rows: on an H200 cuBLAS is quicker from three on

// In the type of x, or in f32.
bool is_thin(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias) {
  const auto type = x.scalar_type();
  return x.dim() == 2 && x.size(0) > 0 && x.size(0) <= kThin && (type == at::kBFloat16 || type == at::kHalf) &&
         weight.scalar_type() == type && x.is_contiguous() && weight.is_contiguous() && in_packs(x) &&
         in_packs(weight) && (!bias.has_value() || (bias->scalar_type() == type && bias->is_contiguous()));
}
// Of so many rows, with so many warps for a column.
const TypedKernel& thin_kernel(int64_t rows, int64_t share, bool wide) {
  static std::mutex mutex;
  static std::map<std::array<int64_t, 3>, std::unique_ptr<TypedKernel>> kernels;
  const std::lock_guard lock(mutex);
  auto& kernel = kernels[{rows, share, wide}];
  if (!kernel)
    kernel = std::make_unique<TypedKernel>("thin_product", "product",
                                           wide ? TypedKernel::Result::Wide : TypedKernel::Result::Same,
                                           str(", ", rows, ", ", share));
  return *kernel;
}

at::Tensor thin_product(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias, bool wide) {
  constexpr int64_t kThreads = 256, kWarps = kThreads / 32, kBlocks = 1024;  // of the whole device, at least
  const int64_t rows = x.size(0), out = weight.size(0);
  int64_t share = 1;
  while (share < kWarps && out * share < kBlocks * kWarps) share *= 2;
  const int64_t columns = kWarps / share;
  const at::Tensor y = at::empty({rows, out}, wide ? x.options().dtype(at::kFloat) : x.options());
  thin_kernel(rows, share, wide)
      .of(x.scalar_type())(Extent{(out + columns - 1) / columns}, Extent{kThreads}, address(x), address(weight),
                           address(or_undefined(bias)), address(y), static_cast<int>(x.size(1)), static_cast<int>(out));
  return y;
}

at::Tensor packed_linear(const at::Tensor& x, const at::Tensor& packed, const OptionalTensor& bias, int64_t) {
  return is_thin(x, packed, bias) ? thin_product(x, packed, bias, false) : at::linear(x, packed, bias);
}

// cuBLAS gives its f32 sums where libtorch can ask for them (2.8 and later).
at::Tensor wide_linear(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias) {
  if (is_thin(x, weight, bias)) return thin_product(x, weight, bias, true);
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
