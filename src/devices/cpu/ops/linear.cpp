// SPDX-License-Identifier: Apache-2.0
// Linear layers of inference (plain_linear.cpp: of training). Weights of a mapped file are multiplied where they lie
// (dots.h, or AMX tiles): nothing is read or written before the first token, and processes share them. Weights that are
// in memory of our own anyway become panels of 32 outputs (kernels.h), read once per 256 rows. Either way the order of
// an output's additions depends on nothing but the number of inputs,
// so a row's result does not depend on the other rows.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "devices/cpu/kernels/isa.h"
#include "devices/cpu/kernels/kernels.h"
#include "devices/cpu/kernels/left.h"
#include "devices/cpu/memory.h"
#include "devices/cpu/ops/panels.h"
#include "devices/cpu/ops/tensors.h"
#include "devices/cpu/parallel.h"
#include "ops/op.h"
#include "tensor/compat.h"

namespace apus::cpu {
namespace {

enum Slot { kBias, kSums, kLaidOut, kRows };
constexpr int64_t kRowBlock = 256, kChunkPanels = 32, kDepthBlock = 256, kTileDepth = 512;
constexpr int64_t kTurnedRows = 512;  // that share the turning or copying of a block of weights

template <class E>
at::Tensor pack(at::TensorList weights) {
  const std::vector<const E*> row = rows_of<E>(weights);
  const auto out = static_cast<int64_t>(row.size());
  const int64_t in = weights[0].size(1), panels = (out + kPanel - 1) / kPanel;
  const at::Tensor packed = empty_huge(panels * panel_size<E>(in), weights[0].scalar_type());
  // Pieces of about 2 MB: a huge page of the result is touched by one thread.
  const int64_t grain =
      std::max<int64_t>(1, (int64_t{2} << 20) / (panel_size<E>(in) * static_cast<int64_t>(sizeof(E))));
  pack_panels(row, in, data<E>(packed), grain);
  return packed;
}

at::Tensor pack_linear(at::TensorList weights_OD, bool mapped) {
  const at::ScalarType dtype = weights_OD[0].scalar_type();
  std::vector<at::Tensor> weights;
  for (const at::Tensor& w : weights_OD) {
    if (w.dim() != 2 || w.numel() == 0 || w.scalar_type() != dtype || w.size(1) != weights_OD[0].size(1) ||
        (dtype != at::kBFloat16 && dtype != at::kFloat))
      return {};
    weights.push_back(w.stride(1) == 1 ? w : w.contiguous());
    mapped = mapped && weights.back().is_same(w);
  }
  if (mapped) {
    if (weights.size() > 1) return at::empty({0}, dtype);  // they lie apart: each for itself
    populate_mapped(weights[0].data_ptr(), static_cast<int64_t>(weights[0].nbytes()));
    return weights[0];
  }
  return dtype == at::kFloat ? pack<float>(weights) : pack<bf16>(weights);
}

// y [m, n] of x [m, k] (rows ldx apart) and packed panels.
template <class E>
void multiply(const E* x, int64_t ldx, int64_t m, int64_t k, const E* packed, const float* bias, E* y, int64_t n) {
  const int64_t panels = (n + kPanel - 1) / kPanel, depth = padded_depth<E>(k);
  const int64_t row_blocks = (m + kRowBlock - 1) / kRowBlock, block = (m + row_blocks - 1) / row_blocks;
  const int64_t chunk = std::clamp<int64_t>(panels * row_blocks / (threads() * 4), 1, kChunkPanels),
                chunks = (panels + chunk - 1) / chunk;
  const int64_t depth_block = m <= 32 ? depth : kDepthBlock;
  share(row_blocks * chunks, 1, [&](int64_t begin, int64_t end) {
    const Multiplying guard;
    const RowKernels<E>& kernel = row_kernels<E>();
    float* sums = scratch(kSums, chunk * block * kPanel);  // [panel][row][32]
    for (int64_t item = begin; item < end; ++item) {
      const int64_t row = item % row_blocks * block, rows = std::min(block, m - row);
      const int64_t first = item / row_blocks * chunk, last = std::min(first + chunk, panels);
      for (int64_t d = 0; d < depth; d += depth_block) {
        const int64_t n = std::min(depth_block, depth - d);
        const Left<E> left(x + row * ldx + d, ldx, rows, n, scratch(kRows, Left<E>::room_for(block, depth_block)));
        for (int64_t p = first; p < last; ++p) {
          const E* panel = packed + p * panel_size<E>(k) + d * kPanel;
          left.times(panel, sums + (p - first) * block * kPanel, kPanel, d > 0, panel + panel_size<E>(k));
        }
      }
      for (int64_t p = first; p < last; ++p)
        kernel.finish(rows, std::min(kPanel, n - p * kPanel), sums + (p - first) * block * kPanel, kPanel,
                      bias ? bias + p * kPanel : nullptr, y + row * n + p * kPanel, n);
    }
  });
}

// y [m, n] of x [m, k] (rows ldx apart) and the n rows of w (ldw apart). Y: E, or float where sums are not rounded.
template <class E, class Y>
void multiply_in_place(const E* x, int64_t ldx, int64_t m, int64_t k, const E* w, int64_t ldw, const float* bias, Y* y,
                       int64_t n) {
  const int64_t row_blocks = (m + kRowBlock - 1) / kRowBlock, block = (m + row_blocks - 1) / row_blocks;
  const int64_t chunk = std::clamp<int64_t>(n / (threads() * 6) / kPanel * kPanel, kPanel, m == 1 ? 512 : 128),
                chunks = (n + chunk - 1) / chunk;
  share(row_blocks * chunks, 1, [&](int64_t begin, int64_t end) {
    const RowKernels<E>& kernel = row_kernels<E>();
    float *sums = scratch(kSums, chunk * block), *space = scratch(kLaidOut, std::max(k + 32, kDotStretch * kDotBatch));
    for (int64_t item = begin; item < end; ++item) {
      const int64_t row = item % row_blocks * block, rows = std::min(block, m - row);
      const int64_t first = item / row_blocks * chunk, columns = std::min(chunk, n - first);
      kernel.dots(rows, columns, k, x + row * ldx, ldx, w + first * ldw, ldw, sums, chunk, space);
      row_kernels<Y>().finish(rows, columns, sums, chunk, bias ? bias + first : nullptr, y + row * n + first, n);
    }
  });
}

// The same, bit for bit, for many rows: each 32 weights are widened and turned for 512 rows at once.
template <class Y>
void multiply_in_lanes(const bf16* x, int64_t ldx, int64_t m, int64_t k, const bf16* w, int64_t ldw, const float* bias,
                       Y* y, int64_t n) {
  const int64_t row_blocks = (m + kTurnedRows - 1) / kTurnedRows, block = (m + row_blocks - 1) / row_blocks;
  const int64_t apart = padded_depth<bf16>(k) + 16;  // not a multiple of 4096 bytes
  const at::Tensor spread = at::empty({block, apart}, at::kFloat);
  for (int64_t row = 0; row < m; row += block) {
    const int64_t rows = std::min(block, m - row);
    share(rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) kernels().spread(k, x + (row + i) * ldx, data<float>(spread) + i * apart);
    });
    share((n + kPanel - 1) / kPanel, 1, [&](int64_t begin, int64_t end) {
      float *sums = scratch(kSums, block * kPanel), *space = scratch(kLaidOut, kDotStretch * kPanel);
      for (int64_t first = begin * kPanel; first < std::min(n, end * kPanel); first += kPanel) {
        const int64_t outputs = std::min(kPanel, n - first);
        kernels().lanes(rows, outputs, k, data<float>(spread), apart, w + first * ldw, ldw, sums, space);
        row_kernels<Y>().finish(rows, outputs, sums, kPanel, bias ? bias + first : nullptr, y + row * n + first, n);
      }
    });
  }
}

// Rows of k elements, side by side, with zeros up to `whole`.
void copy_filled(const bf16* from, int64_t apart, int64_t rows, int64_t k, int64_t whole, bf16* to) {
  for (int64_t i = 0; i < rows; ++i)
    std::fill(std::copy_n(from + i * apart, k, to + i * whole), to + (i + 1) * whole, bf16{0});
}

// y [m, n] of x [m, k] and the n rows of w (ldw apart) on AMX tiles, which take one factor by rows and the other packed
// by columns: the weights lie in rows already, so x is the packed one, and the product comes out turned. Any number of
// rows goes this way, one as well: tiles add in an order of their own.

// y [columns][m] of c [m][columns]'.
void finish_turned(int64_t m, int64_t columns, const float* c, int64_t ldc, const float* bias, bf16* y, int64_t ldy) {
  kernels().finish_turned(m, columns, c, ldc, bias, y, ldy);
}
void finish_turned(int64_t m, int64_t columns, const float* c, int64_t ldc, const float* bias, float* y, int64_t ldy) {
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < m; ++i) y[j * ldy + i] = c[i * ldc + j] + (bias ? bias[i] : 0);
}

// Up to 16 rows of x: tiles no wider than that, whose rows are a pair of inputs of each; one row is as it should be.
template <class Y>
void multiply_few_by_tiles(const bf16* x, int64_t ldx, int64_t m, int64_t k, const bf16* w, int64_t ldw,
                           const float* bias, Y* y, int64_t n) {
  const int64_t depth = padded_depth<bf16>(k);
  const bf16* pairs = paired_rows(x, ldx, m, k, kRows);
  const int64_t chunk = std::clamp<int64_t>(n / (threads() * 12) / kPanel * kPanel, kPanel, 512);
  share((n + chunk - 1) / chunk, 1, [&](int64_t begin, int64_t end) {
    const Multiplying guard;
    float* sums = scratch(kSums, chunk * m + 16);
    auto* filled = reinterpret_cast<bf16*>(scratch(kLaidOut, kPanel * depth / 2));
    for (int64_t first = begin * chunk; first < std::min(n, end * chunk); first += chunk) {
      const int64_t outputs = std::min(chunk, n - first);
      if (k == depth) {
        kernels().multiply_few(outputs, k, w + first * ldw, ldw, pairs, m, sums, /*add=*/false);
      } else {  // rows that are no whole tiles: with zeros behind
        for (int64_t j = 0; j < outputs; j += kPanel) {
          const int64_t rows = std::min(kPanel, outputs - j);
          copy_filled(w + (first + j) * ldw, ldw, rows, k, depth, filled);
          kernels().multiply_few(rows, depth, filled, depth, pairs, m, sums + j * m, /*add=*/false);
        }
      }
      const float* added = bias ? bias + first : nullptr;
      if (m == 1)
        row_kernels<Y>().finish(1, outputs, sums, outputs, added, y + first, n);
      else
        finish_turned(outputs, m, sums, m, added, y + first, n);
    }
  });
}

// 32 outputs at a time: few rows of x need them once, from where they lie; for many they are first copied side by side,
// where their distance in memory (4096 bytes are a bad one) costs nothing.
template <class Y>
void multiply_by_tiles(const bf16* x, int64_t ldx, int64_t m, int64_t k, const bf16* w, int64_t ldw, const float* bias,
                       Y* y, int64_t n) {
  const at::Tensor columns = packed_as_columns(x, ldx, m, k);
  const auto* packed = data<bf16>(columns);
  const int64_t panels = (m + kPanel - 1) / kPanel, depth = padded_depth<bf16>(k), most_panels = kTurnedRows / kPanel;
  const int64_t row_blocks = (panels + most_panels - 1) / most_panels, block = (panels + row_blocks - 1) / row_blocks;
  const int64_t chunk = std::clamp<int64_t>(n / (threads() * 6) / kPanel * kPanel, kPanel, 256),
                chunks = (n + chunk - 1) / chunk;
  const int64_t depth_block = panels == 1 ? depth : kTileDepth;
  const bool copied = block >= 4;
  share(row_blocks * chunks, 1, [&](int64_t begin, int64_t end) {
    const Multiplying guard;
    float* sums = scratch(kSums, chunk * block * kPanel);  // [32 outputs][panel][output][32 rows]
    auto* space = reinterpret_cast<bf16*>(scratch(kLaidOut, kPanel * depth_block / 2));
    for (int64_t item = begin; item < end; ++item) {
      const int64_t panel = item % row_blocks * block, here = std::min(block, panels - panel);
      const int64_t first = item / row_blocks * chunk, last = std::min(first + chunk, n);
      for (int64_t d = 0; d < depth; d += depth_block)
        for (int64_t j = first; j < last; j += kPanel) {
          const int64_t outputs = std::min(kPanel, last - j), whole = std::min(depth_block, depth - d),
                        in = std::min(whole, k - d);
          const bf16* rows = w + j * ldw + d;
          int64_t apart = ldw;
          if (copied || in < whole) {  // filled with zeros to a whole tile, too
            copy_filled(rows, ldw, outputs, in, whole, space);
            rows = space, apart = whole;
          }
          NextRows next;
          if (here > 1 && j + kPanel < last)
            next = {w + (j + kPanel) * ldw + d, std::min(kPanel, last - j - kPanel), ldw, 0, here};
          else if (here > 1 && d + depth_block < depth)
            next = {w + first * ldw + d + depth_block, std::min(kPanel, last - first), ldw, 0, here};
          float* at = sums + (j - first) * block * kPanel;
          for (int64_t p = 0; p < here; ++p, ++next.pass)
            kernels().multiply_rows(outputs, whole, rows, apart,
                                    packed + (panel + p) * panel_size<bf16>(k) + d * kPanel,
                                    std::min(kPanel, m - (panel + p) * kPanel), at + p * kPanel * kPanel, d > 0, next);
        }
      for (int64_t j = first; j < last; j += kPanel)
        for (int64_t p = 0; p < here; ++p) {
          const int64_t row = (panel + p) * kPanel;
          finish_turned(std::min(kPanel, last - j), std::min(kPanel, m - row),
                        sums + ((j - first) * block + p * kPanel) * kPanel, kPanel, bias ? bias + j : nullptr,
                        y + row * n + j, n);
        }
    }
  });
}

// The bias in f32; null: there is none.
template <class E>
const float* wide_bias(const OptionalTensor& bias, const at::Tensor& x, int64_t out) {
  if (!bias.has_value() || !bias->defined()) return nullptr;
  require(bias->numel() == out && bias->scalar_type() == x.scalar_type(), Fault::Bug,
          "packed_linear: bias of another size or type");
  float* wide = scratch(kBias, out);
  const at::Tensor flat = bias->contiguous();
  row_kernels<E>().widen(out, data<E>(flat), wide);
  return wide;
}

// y [rows, out] of weights [out, in] where they lie.
template <class E, class Y>
void multiply_plain(const at::Tensor& rows, const at::Tensor& weight, const float* bias, Y* y) {
  const auto multiply = [&] {
    if constexpr (sizeof(E) == 2) {
      if (kernels().multiply_rows) return rows.size(0) <= kFewRows ? multiply_few_by_tiles<Y> : multiply_by_tiles<Y>;
      if (rows.size(0) >= kManyRows && kernels().lanes) return multiply_in_lanes<Y>;
    }
    return multiply_in_place<E, Y>;
  }();
  multiply(data<E>(rows), rows.stride(0), rows.size(0), rows.size(1), data<E>(weight), weight.stride(0), bias, y,
           weight.size(0));
}

at::Tensor empty_product(const at::Tensor& x, int64_t out, at::ScalarType type) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = out;
  return at::empty(shape, x.options().dtype(type));
}

template <class E>
at::Tensor multiply_tensors(const at::Tensor& x, const at::Tensor& packed, const OptionalTensor& bias, int64_t out) {
  const int64_t in = x.size(-1), depth = padded_depth<E>(in);
  const bool in_place = packed.dim() == 2;
  require(in_place ? packed.size(0) == out && packed.size(1) == in
                   : packed.numel() == (out + kPanel - 1) / kPanel * panel_size<E>(in),
          Fault::Bug, "packed_linear: ", packed.numel(), " packed elements are not those of a weight of ", out, " x ",
          in);
  at::Tensor rows = as_rows(x);
  if (depth != in && !in_place) {  // the filling must be there to read, and finite
    at::Tensor filled = at::zeros({rows.size(0), depth}, x.options());
    filled.narrow(1, 0, in).copy_(rows);
    rows = filled;
  }
  const at::Tensor y = empty_product(x, out, x.scalar_type());
  const float* const added = wide_bias<E>(bias, x, out);
  if (y.numel() == 0) return y;
  if (in_place)
    multiply_plain<E>(rows, packed, added, data<E>(y));
  else
    multiply<E>(data<E>(rows), rows.stride(0), rows.size(0), in, data<E>(packed), added, data<E>(y), out);
  return y;
}

// In f32, as the sums are, of bf16.
at::Tensor wide_linear(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias) {
  if (x.scalar_type() != at::kBFloat16 || weight.scalar_type() != at::kBFloat16 || x.dim() == 0)
    return Reference<decltype(wide_linear)>::call("apus::wide_linear", x, weight, bias);
  const at::Tensor y = empty_product(x, weight.size(0), at::kFloat), rows = as_rows(x), plain = as_rows(weight);
  const float* const added = wide_bias<bf16>(bias, x, weight.size(0));
  if (y.numel() > 0) multiply_plain<bf16>(rows, plain, added, data<float>(y));
  return y;
}

at::Tensor packed_linear(const at::Tensor& x, const at::Tensor& packed, const OptionalTensor& bias, int64_t out) {
  require(x.scalar_type() == packed.scalar_type(), Fault::Bug, "packed_linear: x is ", c10::toString(x.scalar_type()),
          ", the packed weight ", c10::toString(packed.scalar_type()));
  return packed.scalar_type() == at::kFloat ? multiply_tensors<float>(x, packed, bias, out)
                                            : multiply_tensors<bf16>(x, packed, bias, out);
}

}  // namespace
}  // namespace apus::cpu

TORCH_LIBRARY_IMPL(apus, CPU, m) {
  m.impl("pack_linear", apus::cpu::pack_linear);
  m.impl("packed_linear", apus::cpu::packed_linear);
  m.impl("wide_linear", apus::cpu::wide_linear);
}
