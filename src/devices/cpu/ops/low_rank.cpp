// SPDX-License-Identifier: Apache-2.0
// LoRA's thin products: bound by the bytes of the long sides, which are read once each. Weights are rounded to the
// type of the activations, as libtorch's products would have it; sums are in f32. A row's result depends on no other.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

#include "devices/cpu/kernels/kernels.h"
#include "devices/cpu/ops/tensors.h"
#include "devices/cpu/parallel.h"

namespace apus::cpu {
namespace {

using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Add = at::Tensor(at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, double);
using Backward = Triple(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                        double, std::array<bool, 3>);

enum Slot { kProducts, kSpace };
constexpr int64_t kRowsAtOnce = kDotBatch, kColumns = 512;  // of which the thin factor is 16 KB at rank 8

// The thin factor in the type of the activations, as rows of the long side.
at::Tensor rounded(const at::Tensor& w, at::ScalarType type) { return w.to(type).contiguous(); }
at::Tensor widened(const at::Tensor& w, at::ScalarType type) { return rounded(w, type).to(at::kFloat).contiguous(); }

// Sums [rows, r] of x [rows, k] and the r rows of w.
template <class E>
void thin(int64_t rows, int64_t r, int64_t k, const E* x, int64_t ldx, const E* w, float* sums) {
  float* space = scratch(kSpace, std::max(k + 32, kDotStretch * kDotBatch));
  row_kernels<E>().dots(rows, r, k, x, ldx, w, k, sums, r, space);
}

// y [rows, n] = (add ? y : 0) + h b
template <class E>
void spread(int64_t rows, int64_t n, int64_t r, const float* h, int64_t ldh, const float* b, bool add, E* y,
            int64_t ldy) {
  for (int64_t c = 0; c < n; c += kColumns)
    row_kernels<E>().add_outer(rows, std::min(kColumns, n - c), r, h, ldh, b + c, n, add, y + c, ldy);
}

// body(first token, how many, space for r sums of each) for some tokens at a time, on all threads.
template <class Body>
void some_at_a_time(int64_t tokens, int64_t r, const Body& body) {
  share(tokens, kRowsAtOnce, [&](int64_t begin, int64_t end) {
    float* sums = scratch(kProducts, kRowsAtOnce * r);
    for (int64_t t = begin; t < end; t += kRowsAtOnce) body(t, std::min(kRowsAtOnce, end - t), sums);
  });
}

template <class E>
at::Tensor add_to(const at::Tensor& y, const at::Tensor& x, const at::Tensor& a, const at::Tensor& b, double scale) {
  const int64_t tokens = x.size(0), in = x.size(1), out = y.size(1), r = a.size(0);
  const at::Tensor h = at::empty({tokens, r}, x.options()), down = rounded(a, x.scalar_type()),
                   up = widened(b.t(), x.scalar_type());
  some_at_a_time(tokens, r, [&](int64_t t, int64_t rows, float* sums) {
    E* kept = data<E>(h) + t * r;
    thin(rows, r, in, data<E>(x) + t * x.stride(0), x.stride(0), data<E>(down), sums);
    row_kernels<E>().narrow(rows * r, sums, 1.0f, kept);
    row_kernels<E>().widen(rows * r, kept, sums);
    for (int64_t i = 0; i < rows * r; ++i) sums[i] *= static_cast<float>(scale);
    spread(rows, out, r, sums, r, data<float>(up), true, data<E>(y) + t * y.stride(0), y.stride(0));
  });
  return h;
}

// Sums [of, columns of x] of h [tokens, of]' x; `of` is a multiple of 4.
template <class E>
at::Tensor summed(const at::Tensor& h, const at::Tensor& x) {
  // Columns of a thread; tokens whose x stays in the nearest cache.
  constexpr int64_t kAtOnce = 256, kTokens = 64;
  const int64_t tokens = x.size(0), n = x.size(1), of = h.size(1);
  const at::Tensor sums = at::zeros({of, n}, at::kFloat);
  share((n + kAtOnce - 1) / kAtOnce, 1, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kAtOnce, count = std::min(n, end * kAtOnce) - first;
    for (int64_t t = 0; t < tokens; t += kTokens)
      row_kernels<E>().outer_sums(std::min(kTokens, tokens - t), count, of, data<float>(h) + t * of, of,
                                  data<E>(x) + t * x.stride(0) + first, x.stride(0), data<float>(sums) + first, n);
  });
  return sums;
}

template <class E>
Triple gradients(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& h, const at::Tensor& a,
                 const at::Tensor& b, double scale, std::array<bool, 3> need) {
  const int64_t tokens = x.size(0), in = x.size(1), out = dy.size(1), r = a.size(0), of = (r + 3) / 4 * 4;
  const at::Tensor dh = at::zeros({tokens, of}, at::kFloat), dx = need[0] ? at::empty({tokens, in}, dy.options()) : x;
  const at::Tensor up = rounded(b.t(), dy.scalar_type()), down = widened(a, dy.scalar_type());
  some_at_a_time(tokens, r, [&](int64_t t, int64_t rows, float* sums) {
    float* scaled = data<float>(dh) + t * of;
    thin(rows, r, out, data<E>(dy) + t * dy.stride(0), dy.stride(0), data<E>(up), sums);
    for (int64_t i = 0; i < rows * r; ++i) scaled[i / r * of + i % r] = sums[i] * static_cast<float>(scale);
    if (need[0]) spread(rows, in, r, scaled, of, data<float>(down), false, data<E>(dx) + t * in, in);
  });
  at::Tensor da, db;
  if (need[1]) da = summed<E>(dh, x).narrow(0, 0, r).to(a.scalar_type());
  if (need[2]) {
    const at::Tensor wide = at::zeros({tokens, of}, at::kFloat);
    wide.narrow(1, 0, r).copy_(h);
    db = (summed<E>(wide, dy).narrow(0, 0, r).t().contiguous() * scale).to(b.scalar_type());
  }
  return {need[0] ? dx : at::Tensor(), da, db};
}

bool plain(const at::Tensor& y, const at::Tensor& x) {
  return same_small_float(y, x) && y.dim() == 2 && x.dim() == 2 && y.stride(1) == 1;
}

at::Tensor add_low_rank(at::Tensor& y, const at::Tensor& x, const at::Tensor& a, const at::Tensor& b, double scale) {
  if (!plain(y, x)) return Reference<Add>::call("apus::add_low_rank", y, x, a, b, scale);
  return by_type(x, [&](auto e) { return add_to<decltype(e)>(y, as_rows(x), a, b, scale); });
}

Triple low_rank_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& h, const at::Tensor& a,
                         const at::Tensor& b, double scale, std::array<bool, 3> need) {
  if (!plain(x.dim() == 2 ? as_rows(x) : x, dy) || h.scalar_type() != x.scalar_type())
    return Reference<Backward>::call("apus::low_rank_backward", dy, x, h, a, b, scale, need);
  return by_type(dy, [&](auto e) { return gradients<decltype(e)>(as_rows(dy), as_rows(x), h, a, b, scale, need); });
}

}  // namespace
}  // namespace apus::cpu

TORCH_LIBRARY_IMPL(apus, CPU, m) {
  m.impl("add_low_rank", apus::cpu::add_low_rank);
  m.impl("low_rank_backward", apus::cpu::low_rank_backward);
}
