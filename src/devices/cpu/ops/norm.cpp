// SPDX-License-Identifier: Apache-2.0
// RMS norm, alone and after the residual addition, with gradients.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>

#include "devices/cpu/ops/tensors.h"
#include "devices/cpu/parallel.h"
#include "tensor/compat.h"

namespace apus::cpu {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (!same_small_float(x, weight) || !weight.is_contiguous())
    return Reference<at::Tensor(const at::Tensor&, const at::Tensor&, double)>::call("apus::rms_norm", x, weight, eps);
  const at::Tensor y = at::empty(x.sizes(), x.options());
  by_type(x, [&](auto e) {
    using E = decltype(e);
    const Lines<E> in(x);
    share(in.count, lines_at_once(in.width), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        row_kernels<E>().rms_norm(in.width, in[i], nullptr, nullptr, data<E>(weight), static_cast<float>(eps),
                                  data<E>(y) + i * in.width);
    });
  });
  return y;
}

Pair add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps) {
  if (!same_small_float(x, delta, weight) || x.sizes() != delta.sizes() || !weight.is_contiguous())
    return Reference<Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&, double)>::call(
        "apus::add_rms_norm", x, delta, weight, eps);
  const at::Tensor sum = at::empty(x.sizes(), x.options()), y = at::empty(x.sizes(), x.options());
  by_type(x, [&](auto e) {
    using E = decltype(e);
    const Lines<E> in(x), added(delta);
    share(in.count, lines_at_once(in.width), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        row_kernels<E>().rms_norm(in.width, in[i], added[i], data<E>(sum) + i * in.width, data<E>(weight),
                                  static_cast<float>(eps), data<E>(y) + i * in.width);
    });
  });
  return {sum, y};
}

// The weight's gradient is summed in pieces of fixed size, then over the pieces in order:
// the same for any number of threads.
template <class E>
Pair gradient(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, double eps,
              const at::Tensor& extra, bool need_weight) {
  const Lines<E> in(x), dy(grad);
  const at::Tensor dx = at::empty(x.sizes(), x.options()), more = extra.defined() ? extra.contiguous() : extra;
  const int64_t n = in.width, piece = std::max<int64_t>(64, (in.count + 63) / 64),
                pieces = (in.count + piece - 1) / piece;
  const at::Tensor partial = need_weight ? at::zeros({pieces, n}, x.options().dtype(at::kFloat)) : at::Tensor();
  share(pieces, 1, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p)
      for (int64_t i = p * piece; i < std::min(in.count, (p + 1) * piece); ++i)
        row_kernels<E>().rms_norm_gradient(n, in[i], data<E>(weight), dy[i], static_cast<float>(eps),
                                           more.defined() ? data<E>(more) + i * n : nullptr, data<E>(dx) + i * n,
                                           need_weight ? data<float>(partial) + p * n : nullptr);
  });
  if (!need_weight) return {dx, at::Tensor()};
  const at::Tensor dweight = at::empty(weight.sizes(), weight.options());
  float* sum = scratch(0, n);
  std::fill_n(sum, n, 0.0f);
  for (int64_t p = 0; p < pieces; ++p)
    for (int64_t j = 0; j < n; ++j) sum[j] += data<float>(partial)[p * n + j];
  row_kernels<E>().narrow(n, sum, 1.0f, data<E>(dweight));
  return {dx, dweight};
}

Pair rms_norm_backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, double eps,
                       bool need_weight) {
  if (!same_small_float(x, weight, grad) || !weight.is_contiguous())
    return Reference<Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&, double, bool)>::call(
        "apus::rms_norm_backward", grad, x, weight, eps, need_weight);
  return by_type(x, [&](auto e) { return gradient<decltype(e)>(grad, x, weight, eps, {}, need_weight); });
}

Pair add_rms_norm_backward(const OptionalTensor& grad_sum, const at::Tensor& grad_y, const at::Tensor& sum,
                           const at::Tensor& weight, double eps, bool need_weight) {
  const at::Tensor extra = or_undefined(grad_sum);
  if (!same_small_float(sum, weight, grad_y, extra) || !weight.is_contiguous())
    return Reference<Pair(const OptionalTensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, double,
                          bool)>::call("apus::add_rms_norm_backward", grad_sum, grad_y, sum, weight, eps, need_weight);
  return by_type(sum, [&](auto e) { return gradient<decltype(e)>(grad_y, sum, weight, eps, extra, need_weight); });
}

}  // namespace
}  // namespace apus::cpu

TORCH_LIBRARY_IMPL(apus, CPU, m) {
  m.impl("rms_norm", apus::cpu::rms_norm);
  m.impl("add_rms_norm", apus::cpu::add_rms_norm);
  m.impl("rms_norm_backward", apus::cpu::rms_norm_backward);
  m.impl("add_rms_norm_backward", apus::cpu::add_rms_norm_backward);
}
