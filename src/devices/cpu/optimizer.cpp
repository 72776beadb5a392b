// SPDX-License-Identifier: Apache-2.0
// AdamW in one pass over memory, with moments of four bytes or of one, and the sum of squares for clipping.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "devices/cpu/parallel.h"
#include "devices/cpu/tensors.h"
#include "ops/ops.h"
#include "tensor/compat.h"
#include "tensor/dither.h"

namespace apus::cpu {
namespace {

static_assert(kMoments == ops::kMomentBlock && kThresholdStride == kDitherStride);
constexpr int64_t kBlock = 1024;  // elements that a thread holds in f32 at a time, in its first-level cache

// A block of a tensor in f32: the tensor itself, or a widened copy that write() rounds back.
class Block {
 public:
  Block(const at::Tensor& t, int64_t begin, int64_t n, float* space, bool copied = false)
      : t_(t), begin_(begin), n_(n) {
    const bool wide = t.scalar_type() == at::kFloat;
    values = wide && !copied ? data<float>(t) + begin : space;
    if (!wide)
      row_kernels<bf16>().widen(n, data<bf16>(t) + begin, space);
    else if (copied)
      std::copy_n(data<float>(t) + begin, n, space);
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

// Asks memory for bytes that the next block will read: there are too many streams for the hardware to follow them all.
void ask_for(const at::Tensor& t, int64_t begin, int64_t end) {
  const int64_t size = static_cast<int64_t>(t.element_size()), last = std::min(end, t.numel()) * size;
  for (int64_t byte = begin * size; byte < last; byte += 64) __builtin_prefetch(data<char>(t) + byte, 1);
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

// The moments of one block for the inner loop; the last block of a tensor is filled up to whole vectors in `space`.
class MomentBlock {
 public:
  MomentBlock(const Moments& there, int64_t n) : there_(there), n_(n), whole_(n % 16 == 0) {
    if (whole_) return;
    std::memcpy(mean_, there.mean, n), std::memcpy(square_, there.square, n);
  }
  Moments get() {
    Moments m = there_;
    if (!whole_) m.mean = mean_, m.square = square_;
    return m;
  }
  void write() const {
    if (!whole_) std::memcpy(there_.mean, mean_, n_), std::memcpy(there_.square, square_, n_);
  }

 private:
  Moments there_;
  int64_t n_;
  bool whole_;
  int8_t mean_[kMoments] = {};
  uint8_t square_[kMoments] = {};
};

void adamw_8bit(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& m_scale, at::Tensor& v,
                at::Tensor& v_scale, const OptionalTensor& master, double lr, double beta1, double beta2, double eps,
                double weight_decay, int64_t step, double grad_scale, int64_t dither, bool stochastic) {
  const at::Tensor value = master.has_value() ? *master : param;
  const auto plain = [&](const at::Tensor& t) {
    return same_small_float(t) && t.is_contiguous() && t.numel() == param.numel();
  };
  if (!plain(value) || !plain(param) || !plain(grad))
    return Reference<Adamw8>::call("apus::adamw_8bit", param, grad, m, m_scale, v, v_scale, master, lr, beta1, beta2,
                                   eps, weight_decay, step, grad_scale, dither, stochastic);
  const AdamwScalars scalars = scalars_of(lr, beta1, beta2, eps, weight_decay, step, grad_scale);
  share((value.numel() + kBlock - 1) / kBlock, 32, [&](int64_t first, int64_t last) {
    alignas(64) float space[2][kBlock];
    for (int64_t b = first; b < last; ++b) {
      const int64_t begin = b * kBlock, n = std::min(kBlock, value.numel() - begin), filled = (n + 15) / 16 * 16;
      const Block p(value, begin, n, space[0], filled > n), g(grad, begin, n, space[1], filled > n);
      std::fill(p.values + n, p.values + filled, 0.0f), std::fill(g.values + n, g.values + filled, 0.0f);
      for (int64_t i = 0; i < n; i += kMoments) {
        const int64_t at = begin + i, count = std::min(kMoments, n - i);
        const auto threshold = [&](int64_t start) { return static_cast<uint32_t>(advanced(dither + start, at)); };
        MomentBlock moments(
            {data<int8_t>(m) + at, data<uint8_t>(v) + at, data<float>(m_scale) + at / kMoments,
             data<float>(v_scale) + at / kMoments, threshold(ops::kMeanDither), threshold(ops::kSquareDither)},
            count);
        for (const at::Tensor* t :
             {&value, &grad, static_cast<const at::Tensor*>(&m), static_cast<const at::Tensor*>(&v)})
          ask_for(*t, at + 2 * kBlock, at + 2 * kBlock + kMoments);
        kernels().adamw_moments((count + 15) / 16 * 16, p.values + i, g.values + i, moments.get(), scalars);
        moments.write();
      }
      write(p, param, master.has_value(), stochastic ? dither : -1);
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
