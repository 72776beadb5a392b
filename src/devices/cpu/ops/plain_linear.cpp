// SPDX-License-Identifier: Apache-2.0
// Plain linear layers (training, scoring): each product of many rows packs one of its sides on the way, some percent of
// its work, and then runs on panels, a fifth faster than where weights lie. Few rows of f32 pack a panel at a time
// while it is in the cache: the additions are those of many rows, so that an engine over the weights that are trained
// gives each token the bits that training gives it. Few rows of bf16 take the weights as they are. Where oneDNN has an
// instruction for the type that we do not beat (AMX, fast vdpbf16ps), its products are used. Where rows are to be
// steady (ops/steady_rows.h), all rows of bf16 take the weights as they are: the sums are those of few rows.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "devices/cpu/kernels/isa.h"
#include "devices/cpu/kernels/kernels.h"
#include "devices/cpu/ops/panels.h"
#include "devices/cpu/ops/tensors.h"
#include "devices/cpu/parallel.h"
#include "ops/op.h"
#include "ops/ops.h"
#include "ops/steady_rows.h"
#include "tensor/compat.h"

namespace apus::cpu {
namespace {

using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Linear = at::Tensor(const at::Tensor&, const at::Tensor&, const OptionalTensor&);
using LinearBackward = Triple(const at::Tensor&, const OptionalTensor&, const OptionalTensor&, std::array<bool, 3>);

bool ours_is_faster(at::ScalarType type) {
  if (isa() == Isa::Generic) return false;
  // libtorch's products of bf16 use the instructions that there are for them.
  const bool by_pairs = isa() == Isa::Amx || (isa() == Isa::Avx512 && bf16_pairs_pay());
  return type == at::kFloat || (type == at::kBFloat16 && !by_pairs);
}

// Whether packing repays itself: it does from some rows on (measured: 24 rows of 896 take half the time in place, 200
// as long); layers narrower than a panel would mostly multiply its filling.
// A gradient has no other way but plain operators.
constexpr int64_t kForward = 128, kGradient = 8;
bool worthwhile(const at::Tensor& x, int64_t out, int64_t rows) {
  const int64_t in = x.size(-1);
  return x.dim() > 1 && in >= kPanel && out >= kPanel && x.numel() >= rows * in && ours_is_faster(x.scalar_type());
}

at::Tensor panels_for(int64_t columns, int64_t depth, at::ScalarType type) {
  const int64_t size = type == at::kFloat ? panel_size<float>(depth) : panel_size<bf16>(depth);
  return at::empty({(columns + kPanel - 1) / kPanel * size}, type);
}

// Panels whose columns are the rows of `m` [columns, depth].
template <class E>
at::Tensor pack_as_columns(const at::Tensor& m) {
  const at::Tensor packed = panels_for(m.size(0), m.size(1), m.scalar_type());
  pack_panels(rows_of<E>(m), m.size(1), data<E>(packed), 1);
  return packed;
}

// Panels of `m` [depth, columns] as it is.
template <class E>
at::Tensor pack_as_rows(const at::Tensor& m) {
  const int64_t depth = m.size(0), columns = m.size(1);
  const at::Tensor packed = panels_for(columns, depth, m.scalar_type());
  share((columns + kPanel - 1) / kPanel, 1, [&](int64_t begin, int64_t end) {
    std::vector<const E*> rows(depth);
    for (int64_t p = begin; p < end; ++p) {
      for (int64_t i = 0; i < depth; ++i) rows[i] = data<E>(m) + i * m.stride(0) + p * kPanel;
      row_kernels<E>().pack_rows(rows.data(), depth, std::min(kPanel, columns - p * kPanel),
                                 data<E>(packed) + p * panel_size<E>(depth));
    }
  });
  return packed;
}

// Eight by eight elements, rows to columns.
[[maybe_unused]] void transpose_square(const bf16* from, int64_t stride, bf16* to, int64_t to_stride) {
  using Row = bf16 __attribute__((vector_size(16)));
  Row a[8], b[8];
  for (int i = 0; i < 8; ++i) std::memcpy(&a[i], from + i * stride, sizeof a[i]);
  for (int i = 0; i < 4; ++i) {
    b[2 * i] = __builtin_shufflevector(a[2 * i], a[2 * i + 1], 0, 8, 1, 9, 2, 10, 3, 11);
    b[2 * i + 1] = __builtin_shufflevector(a[2 * i], a[2 * i + 1], 4, 12, 5, 13, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4)
    for (int h = 0; h < 2; ++h) {
      a[i + 2 * h] = __builtin_shufflevector(b[i + h], b[i + h + 2], 0, 1, 8, 9, 2, 3, 10, 11);
      a[i + 2 * h + 1] = __builtin_shufflevector(b[i + h], b[i + h + 2], 4, 5, 12, 13, 6, 7, 14, 15);
    }
  for (int i = 0; i < 4; ++i) {
    const Row low = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    const Row high = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    std::memcpy(to + 2 * i * to_stride, &low, sizeof low);
    std::memcpy(to + (2 * i + 1) * to_stride, &high, sizeof high);
  }
}
template <class E>
void transpose_square(const E* from, int64_t stride, E* to, int64_t to_stride) {
  for (int64_t i = 0; i < 8; ++i)
    for (int64_t j = 0; j < 8; ++j) to[j * to_stride + i] = from[i * stride + j];
}

// m' [columns, rows filled up to the depth of a product].
template <class E>
at::Tensor transposed(const at::Tensor& m) {
  constexpr int64_t kSquare = 8;
  const int64_t rows = m.size(0), columns = m.size(1), depth = padded_depth<E>(rows), stride = m.stride(0);
  const at::Tensor out = at::empty({columns, depth}, m.options());
  share((columns + kSquare - 1) / kSquare, 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < depth; r += kSquare)
      for (int64_t c = begin * kSquare; c < std::min(columns, end * kSquare); c += kSquare) {
        const E* from = data<E>(m) + r * stride + c;
        E* to = data<E>(out) + c * depth + r;
        if (r + kSquare <= rows && c + kSquare <= columns) {
          transpose_square(from, stride, to, depth);
          continue;
        }
        for (int64_t j = 0; j < std::min(kSquare, columns - c); ++j)
          for (int64_t i = 0; i < std::min(kSquare, depth - r); ++i)
            to[j * depth + i] = r + i < rows ? from[i * stride + j] : E(0);
      }
  });
  return out;
}

at::Tensor product(const at::Tensor& x, const at::Tensor& panels, const at::Tensor& bias, int64_t out) {
  return ops::packed_linear(x, panels, bias, out);
}

enum Slot { kPacked, kSums };

// For few rows, bit for bit what many rows get.
at::Tensor product_by_panels(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias) {
  constexpr int64_t kDepth = 256;  // of k: a panel of 32 KB
  const at::Tensor rows = as_rows(x), w = as_rows(weight);
  const int64_t m = rows.size(0), k = rows.size(1), out = w.size(0);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = out;
  const at::Tensor y = at::empty(shape, x.options());
  const at::Tensor added = bias.has_value() && bias->defined() ? bias->contiguous() : at::Tensor();
  share((out + kPanel - 1) / kPanel, 1, [&](int64_t begin, int64_t end) {
    const Multiplying guard;
    const RowKernels<float>& kernel = row_kernels<float>();
    float *panel = scratch(kPacked, kDepth * kPanel), *sums = scratch(kSums, m * kPanel);
    const float* columns[kPanel];
    for (int64_t p = begin; p < end; ++p) {
      const int64_t first = p * kPanel, count = std::min(kPanel, out - first);
      for (int64_t d = 0; d < k; d += kDepth) {
        const int64_t depth = std::min(kDepth, k - d);
        for (int64_t i = 0; i < count; ++i) columns[i] = data<float>(w) + (first + i) * w.stride(0) + d;
        kernel.pack_columns(columns, count, depth, panel);
        kernel.multiply(m, depth, data<float>(rows) + d, rows.stride(0), panel, sums, kPanel, d > 0, nullptr);
      }
      kernel.finish(m, count, sums, kPanel, added.defined() ? data<float>(added) + first : nullptr,
                    data<float>(y) + first, out);
    }
  });
  return y;
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias) {
  const bool steady = ops::steady_rows() && x.scalar_type() == at::kBFloat16;
  if (steady && weight.scalar_type() == x.scalar_type() && x.dim() > 0)
    return product(x, as_rows(weight), or_undefined(bias), weight.size(0));
  if (!ours_is_faster(x.scalar_type()) || weight.scalar_type() != x.scalar_type() || x.dim() == 0)
    return Reference<Linear>::call("apus::linear", x, weight, bias);
  if (!worthwhile(x, weight.size(0), kForward) && x.scalar_type() == at::kFloat && x.numel() > 0)
    return product_by_panels(x, weight, bias);
  if (!worthwhile(x, weight.size(0), kForward)) return product(x, as_rows(weight), or_undefined(bias), weight.size(0));
  return by_type(x, [&](auto e) {
    return product(x, pack_as_columns<decltype(e)>(as_rows(weight)), or_undefined(bias), weight.size(0));
  });
}

Triple linear_backward(const at::Tensor& grad, const OptionalTensor& x, const OptionalTensor& weight,
                       std::array<bool, 3> need) {
  const int64_t in = weight.has_value() ? weight->size(1) : x.has_value() ? x->size(-1) : 0;
  const auto same = [&](const OptionalTensor& t) { return !t.has_value() || t->scalar_type() == grad.scalar_type(); };
  if (!worthwhile(grad, in, kGradient) || !same(x) || !same(weight))
    return Reference<LinearBackward>::call("apus::linear_backward", grad, x, weight, need);
  return by_type(grad, [&](auto e) -> Triple {
    using E = decltype(e);
    at::Tensor dx, dweight, dbias;
    if (need[0]) dx = product(grad, pack_as_rows<E>(as_rows(*weight)), {}, in);
    if (need[1]) dweight = product(transposed<E>(as_rows(grad)), pack_as_rows<E>(as_rows(*x)), {}, in);
    if (need[2]) dbias = as_rows(grad).sum(0, /*keepdim=*/false, at::kFloat).to(grad.scalar_type());
    return {dx, dweight, dbias};
  });
}

}  // namespace
}  // namespace apus::cpu

TORCH_LIBRARY_IMPL(apus, CPU, m) {
  m.impl("linear", apus::cpu::linear);
  m.impl("linear_backward", apus::cpu::linear_backward);
}
