// SPDX-License-Identifier: Apache-2.0
// AdamW's step, and the gradients' norm without a wait for each tensor.
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "devices/cuda/ops.h"
#include "devices/cuda/typed.h"
#include "ops/op.h"
#include "tensor/dither.h"

namespace apus::cuda {

namespace {

using Adamw = void(at::Tensor&, const at::Tensor&, at::Tensor&, at::Tensor&, const OptionalTensor&, double, double,
                   double, double, double, int64_t, double, int64_t);
using SumOfSquares = at::Tensor(at::TensorList);

// As kernels/adamw.cu has it.
struct Step {
  float grad_scale, beta1, beta2, shrink, rate, correction2, eps;
  long long dither;
};

bool is_plain(const at::Tensor& t, at::ScalarType type, int64_t count) {
  return t.scalar_type() == type && t.is_contiguous() && t.numel() == count;
}

void adamw(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& v, const OptionalTensor& master,
           double lr, double beta1, double beta2, double eps, double weight_decay, int64_t step, double grad_scale,
           int64_t dither) {
  const int64_t count = param.numel();
  const auto type = param.scalar_type(), grad_type = grad.scalar_type();
  const bool taken =
      is_narrow_or_float(type) && (grad_type == type || grad_type == at::kFloat) && is_plain(param, type, count) &&
      is_plain(grad, grad_type, count) && is_plain(m, at::kFloat, count) && is_plain(v, at::kFloat, count) &&
      (!master.has_value() || is_plain(*master, at::kFloat, count)) && count > 0 && !(dither >= 0 && type == at::kHalf);
  if (!taken) {
    static const auto reference = ops::handle<Adamw>("apus::adamw");
    return ops::call_reference(reference, param, grad, m, v, master, lr, beta1, beta2, eps, weight_decay, step,
                               grad_scale, dither);
  }
  static const Kernel bf16("adamw", "step<bf16, bf16>"), bf16_wide("adamw", "step<bf16, float>"),
      f16("adamw", "step<f16, f16>"), f16_wide("adamw", "step<f16, float>"), f32("adamw", "step<float, float>");
  const bool wide = grad_type == at::kFloat;
  const Kernel& kernel = type == at::kBFloat16 ? (wide ? bf16_wide : bf16)
                         : type == at::kHalf   ? (wide ? f16_wide : f16)
                                               : f32;
  const auto f = [](double x) { return static_cast<float>(x); };
  const auto steps = static_cast<double>(step);
  const Step s{f(grad_scale),
               f(beta1),
               f(beta2),
               f(1 - lr * weight_decay),
               f(lr / (1 - std::pow(beta1, steps))),
               f(std::sqrt(1 - std::pow(beta2, steps))),
               f(eps),
               type == at::kBFloat16 ? dither : -1};
  constexpr int64_t kThreads = 256, kMostBlocks = 4096;
  kernel(Extent{std::clamp<int64_t>((count + kThreads - 1) / kThreads, 1, kMostBlocks)}, Extent{kThreads},
         address(param), address(grad), address(m), address(v), address(or_undefined(master)), s,
         static_cast<long long>(count));
}

// Of all tensors of a device in one row of sums, added up by one operator: one number goes to the host.
double sum_there(const std::vector<at::Tensor>& tensors) {
  static const TypedKernel kernel("sum_of_squares", "sums");
  constexpr int64_t kThreads = 256, kEach = kThreads * 64, kMostBlocks = 1024;
  const auto blocks_of = [&](const at::Tensor& t) { return std::min(kMostBlocks, (t.numel() + kEach - 1) / kEach); };
  int64_t all = 0;
  for (const at::Tensor& t : tensors) all += blocks_of(t);
  const at::Tensor sums = at::empty({all}, tensors[0].options().dtype(at::kDouble));
  auto* out = static_cast<double*>(sums.data_ptr());
  for (const at::Tensor& t : tensors) {
    const int64_t blocks = blocks_of(t);
    kernel.of(t.scalar_type())(Extent{blocks}, Extent{kThreads}, address(t), out, static_cast<long long>(t.numel()));
    out += blocks;
  }
  return sums.sum().item<double>();
}

at::Tensor sum_of_squares(at::TensorList tensors) {
  std::map<int, std::vector<at::Tensor>> by_device;
  std::vector<at::Tensor> others;
  for (const at::Tensor& t : tensors) {
    if (t.numel() == 0) continue;
    if (is_narrow_or_float(t.scalar_type()))
      by_device[t.device().index()].push_back(t.detach().contiguous());
    else
      others.push_back(t);
  }
  double sum = 0;
  for (const auto& [index, own] : by_device) {
    const c10::cuda::CUDAGuard here(static_cast<c10::DeviceIndex>(index));
    sum += sum_there(own);
  }
  if (!others.empty()) {
    static const auto reference = ops::handle<SumOfSquares>("apus::sum_of_squares");
    sum += ops::call_reference(reference, others).item<double>();
  }
  return at::scalar_tensor(sum, at::TensorOptions(at::kCPU).dtype(at::kDouble));
}

}  // namespace

std::vector<OwnOp> optimizer_ops() {
  return {own<adamw>("adamw", kOwnKernel), own<sum_of_squares>("sum_of_squares", kOwnKernel)};
}

}  // namespace apus::cuda
