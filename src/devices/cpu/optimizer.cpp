// SPDX-License-Identifier: Apache-2.0
// AdamW in one pass over memory, and the sum of squares for clipping.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "devices/cpu/parallel.h"
#include "devices/cpu/tensors.h"
#include "tensor/compat.h"

namespace apus::cpu {
namespace {

constexpr int64_t kBlock = 1024;  // elements that a thread holds in f32 at a time, in its first-level cache

// A block of a tensor in f32: the tensor itself, or a widened copy that write() rounds back.
class Block {
 public:
  Block(const at::Tensor& t, int64_t begin, int64_t n, float* space) : t_(t), begin_(begin), n_(n) {
    if (t.scalar_type() == at::kFloat) {
      values = data<float>(t) + begin;
    } else {
      values = space;
      row_kernels<bf16>().widen(n, data<bf16>(t) + begin, space);
    }
  }
  void write() const { write(t_); }
  void write(const at::Tensor& to) const {
    if (to.scalar_type() == at::kBFloat16)
      row_kernels<bf16>().narrow(n_, values, 1.0f, data<bf16>(to) + begin_);
    else if (data<float>(to) + begin_ != values)
      std::copy_n(values, n_, data<float>(to) + begin_);
  }
  float* values;

 private:
  const at::Tensor& t_;
  int64_t begin_, n_;
};

using Adamw = void(at::Tensor&, const at::Tensor&, at::Tensor&, at::Tensor&, const OptionalTensor&, double, double, double, double, double, int64_t,
                   double);

void adamw(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& v, const OptionalTensor& master, double lr, double beta1,
           double beta2, double eps, double weight_decay, int64_t step, double grad_scale) {
  const at::Tensor value = master.has_value() ? *master : param;
  const auto plain = [&](const at::Tensor& t) { return same_small_float(t) && t.is_contiguous() && t.sizes() == param.sizes(); };
  if (!plain(value) || !plain(param) || !plain(grad) || !plain(m) || !plain(v))
    return Reference<Adamw>::call("apus::adamw", param, grad, m, v, master, lr, beta1, beta2, eps, weight_decay, step, grad_scale);
  const auto f = [](double x) { return static_cast<float>(x); };
  const AdamwScalars scalars{f(lr), f(beta1), f(beta2), f(eps), f(weight_decay), f(1 - std::pow(beta1, static_cast<double>(step))),
                             f(1 - std::pow(beta2, static_cast<double>(step))), f(grad_scale)};
  share((value.numel() + kBlock - 1) / kBlock, 32, [&](int64_t first, int64_t last) {
    float space[4][kBlock];
    for (int64_t b = first; b < last; ++b) {
      const int64_t begin = b * kBlock, n = std::min(kBlock, value.numel() - begin);
      const Block p(value, begin, n, space[0]), g(grad, begin, n, space[1]), mean(m, begin, n, space[2]), square(v, begin, n, space[3]);
      kernels().adamw(n, p.values, g.values, mean.values, square.values, scalars);
      mean.write();
      square.write();
      p.write();
      if (master.has_value()) p.write(param);
    }
  });
}

// Pieces of fixed size, summed in order: the same for any number of threads.
at::Tensor sum_of_squares(at::TensorList tensors) {
  constexpr int64_t kPiece = int64_t{1} << 18;
  double total = 0;
  for (const at::Tensor& t : tensors) {
    if (!same_small_float(t)) {
      total += Reference<at::Tensor(at::TensorList)>::call("apus::sum_of_squares", t).item().toDouble();
      continue;
    }
    const at::Tensor dense = t.contiguous();
    const int64_t pieces = (dense.numel() + kPiece - 1) / kPiece;
    std::vector<double> sums(pieces);
    by_type(dense, [&](auto e) {
      using E = decltype(e);
      share(pieces, 1, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p)
          sums[p] = row_kernels<E>().sum_of_squares(std::min(kPiece, dense.numel() - p * kPiece), data<E>(dense) + p * kPiece);
      });
    });
    for (const double s : sums) total += s;
  }
  const at::Tensor out = at::empty({}, at::kDouble);
  *data<double>(out) = total;
  return out;
}

}  // namespace
}  // namespace apus::cpu

TORCH_LIBRARY_IMPL(apus, CPU, m) {
  m.impl("adamw", apus::cpu::adamw);
  m.impl("sum_of_squares", apus::cpu::sum_of_squares);
}
