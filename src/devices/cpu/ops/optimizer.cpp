// SPDX-License-Identifier: Apache-2.0
// AdamW in one pass over memory, with moments of four bytes or of one, and the sum of squares for clipping.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "devices/cpu/ops/tensors.h"
#include "devices/cpu/parallel.h"
#include "ops/ops.h"
#include "tensor/byte_dither.h"
#include "tensor/compat.h"

namespace apus::cpu {
namespace {

static_assert(kMoments == ops::kMomentBlock && kThresholdStride == kDitherStride && kCodeStride == kByteDitherStride);
// Elements that a thread holds in f32 at a time, in its first-level cache.
constexpr int64_t kBlock = 1024;

// A block of a tensor in f32: the tensor itself, or a widened copy that write() rounds back.
class Block {
 public:
  Block(const at::Tensor& t, int64_t begin, int64_t n, float* space) : t_(t), begin_(begin), n_(n) {
    const bool wide = t.scalar_type() == at::kFloat;
    values = wide ? data<float>(t) + begin : space;
    if (!wide) row_kernels<bf16>().widen(n, data<bf16>(t) + begin, space);
  }
  void write() const { write(t_); }
  void write(const at::Tensor& to) const {
    if (to.scalar_type() == at::kBFloat16)
      row_kernels<bf16>().narrow(n_, values, 1.0f, data<bf16>(to) + begin_);
    else if (data<float>(to) + begin_ != values)
      std::copy_n(values, n_, data<float>(to) + begin_);
  }
  void write_by_thresholds(const at::Tensor& to, int64_t dither) const {
    kernels().narrow_by_thresholds(n_, values, static_cast<uint32_t>(advanced(dither, begin_)),
                                   data<bf16>(to) + begin_);
  }
  float* values;

 private:
  const at::Tensor& t_;
  int64_t begin_, n_;
};

// A block of new values: the parameter's own, or the master's that it is rounded from.
void write(const Block& p, const at::Tensor& param, bool has_master, int64_t dither) {
  if (has_master) p.write();
  if (dither >= 0 && param.scalar_type() == at::kBFloat16)
    p.write_by_thresholds(param, dither);
  else
    p.write(param);
}

AdamwScalars scalars_of(double lr, double beta1, double beta2, double eps, double weight_decay, int64_t step,
                        double grad_scale) {
  const auto f = [](double x) { return static_cast<float>(x); };
  const auto correction = [&](double beta) { return f(1 - std::pow(beta, static_cast<double>(step))); };
  return {f(lr), f(beta1), f(beta2), f(eps), f(weight_decay), correction(beta1), correction(beta2), f(grad_scale)};
}

using Adamw = void(at::Tensor&, const at::Tensor&, at::Tensor&, at::Tensor&, const OptionalTensor&, double, double,
                   double, double, double, int64_t, double, int64_t);

void adamw(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& v, const OptionalTensor& master,
           double lr, double beta1, double beta2, double eps, double weight_decay, int64_t step, double grad_scale,
           int64_t dither) {
  const at::Tensor value = master.has_value() ? *master : param;
  const auto plain = [&](const at::Tensor& t) {
    return same_small_float(t) && t.is_contiguous() && t.sizes() == param.sizes();
  };
  if (!plain(value) || !plain(param) || !plain(grad) || !plain(m) || !plain(v))
    return Reference<Adamw>::call("apus::adamw", param, grad, m, v, master, lr, beta1, beta2, eps, weight_decay, step,
                                  grad_scale, dither);
  const AdamwScalars scalars = scalars_of(lr, beta1, beta2, eps, weight_decay, step, grad_scale);
  share((value.numel() + kBlock - 1) / kBlock, 32, [&](int64_t first, int64_t last) {
    float space[4][kBlock];
    for (int64_t b = first; b < last; ++b) {
      const int64_t begin = b * kBlock, n = std::min(kBlock, value.numel() - begin);
      const Block p(value, begin, n, space[0]), g(grad, begin, n, space[1]), mean(m, begin, n, space[2]),
          square(v, begin, n, space[3]);
      kernels().adamw(n, p.values, g.values, mean.values, square.values, scalars);
      mean.write();
      square.write();
      write(p, param, master.has_value(), dither);
    }
  });
}

using Adamw8 = void(at::Tensor&, const at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor&,
                    const OptionalTensor&, double, double, double, double, double, int64_t, double, int64_t, bool);

// A stretch at a tensor's end, filled up to whole vectors.
template <class E>
struct Ragged {
  E param[kMomentStretch] = {}, grad[kMomentStretch] = {};
  float master[kMomentStretch] = {};
  int8_t mean[kMomentStretch] = {};
  uint8_t square[kMomentStretch] = {};

  void step(int64_t n, E* p, float* wide, const E* g, const Moments& there, const AdamwScalars& scalars) {
    Moments here = there;
    here.mean = mean, here.square = square;
    std::copy_n(p, n, param), std::copy_n(g, n, grad);
    std::copy_n(there.mean, n, mean), std::copy_n(there.square, n, square);
    if (wide) std::copy_n(wide, n, master);
    kernels().adamw_moments((n + 63) / 64 * 64, {sizeof(E) == 2, param, grad, wide ? master : nullptr}, here, scalars);
    std::copy_n(param, n, p), std::copy_n(mean, n, there.mean), std::copy_n(square, n, there.square);
    if (wide) std::copy_n(master, n, wide);
  }
};

void adamw_8bit(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& m_scale, at::Tensor& v,
                at::Tensor& v_scale, const OptionalTensor& master, double lr, double beta1, double beta2, double eps,
                double weight_decay, int64_t step, double grad_scale, int64_t dither, bool stochastic) {
  const at::Tensor value = master.has_value() ? *master : param;
  const auto plain = [&](const at::Tensor& t) {
    return same_small_float(t) && t.is_contiguous() && t.numel() == param.numel();
  };
  if (!plain(value) || !plain(param) || !plain(grad) || grad.scalar_type() != param.scalar_type() ||
      (master.has_value() && master->scalar_type() != at::kFloat))
    return Reference<Adamw8>::call("apus::adamw_8bit", param, grad, m, m_scale, v, v_scale, master, lr, beta1, beta2,
                                   eps, weight_decay, step, grad_scale, dither, stochastic);
  const AdamwScalars scalars = scalars_of(lr, beta1, beta2, eps, weight_decay, step, grad_scale);
  by_type(param, [&](auto e) {
    using E = decltype(e);
    share((param.numel() + kMomentStretch - 1) / kMomentStretch, 32, [&](int64_t first, int64_t last) {
      for (int64_t stretch = first; stretch < last; ++stretch) {
        const int64_t at = stretch * kMomentStretch, n = std::min(kMomentStretch, param.numel() - at);
        const Moments moments{data<int8_t>(m) + at,
                              data<uint8_t>(v) + at,
                              data<float>(m_scale) + at / kMoments,
                              data<float>(v_scale) + at / kMoments,
                              byte_dither_start(dither + ops::kMeanDither, at),
                              byte_dither_start(dither + ops::kSquareDither, at),
                              static_cast<uint32_t>(advanced(dither, at)),
                              stochastic};
        E* const p = data<E>(param) + at;
        const E* const g = data<E>(grad) + at;
        float* const wide = master.has_value() ? data<float>(*master) + at : nullptr;
        if (n % 64 == 0)
          kernels().adamw_moments(n, {sizeof(E) == 2, p, g, wide}, moments, scalars);
        else
          Ragged<E>().step(n, p, wide, g, moments, scalars);
      }
    });
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
          sums[p] = row_kernels<E>().sum_of_squares(std::min(kPiece, dense.numel() - p * kPiece),
                                                    data<E>(dense) + p * kPiece);
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
  m.impl("adamw_8bit", apus::cpu::adamw_8bit);
  m.impl("sum_of_squares", apus::cpu::sum_of_squares);
}
