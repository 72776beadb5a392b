// SPDX-License-Identifier: Apache-2.0
// Linear layers of inference (plain_linear.cpp: of training). Weights of a mapped file are multiplied where they lie
// (dots.h): nothing is read or written before the first token, and processes share them. AMX, and weights that are in memory of our own anyway, take panels of 32
// outputs (kernels.h), read once per 256 rows. Either way the order of an output's additions depends on nothing but the number
// of inputs, so a row's result does not depend on the other rows.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "devices/cpu/isa.h"
#include "devices/cpu/kernels.h"
#include "devices/cpu/left.h"
#include "devices/cpu/memory.h"
#include "devices/cpu/panels.h"
#include "devices/cpu/parallel.h"
#include "devices/cpu/tensors.h"
#include "tensor/compat.h"

namespace apus::cpu {
namespace {

enum Slot { kBias, kSums, kLaidOut, kRows };
constexpr int64_t kRowBlock = 256, kChunkPanels = 16, kDepthBlock = 512;

// Gives the rows' pages of a mapped file back, neighbours together.
template <class E>
void forget_rows(const E* const* row, int64_t count, int64_t in) {
  for (int64_t i = 0, begin = 0; i < count; ++i) {
    if (i + 1 < count && row[i + 1] == row[i] + in) continue;
    forget_mapped(row[begin], (row[i] + in - row[begin]) * static_cast<int64_t>(sizeof(E)));
    begin = i + 1;
  }
}

template <class E>
at::Tensor pack(at::TensorList weights, bool mapped) {
  const std::vector<const E*> row = rows_of<E>(weights);
  const auto out = static_cast<int64_t>(row.size());
  const int64_t in = weights[0].size(1), panels = (out + kPanel - 1) / kPanel;
  const at::Tensor packed = empty_huge(panels * panel_size<E>(in), weights[0].scalar_type());
  // Pieces of about 2 MB: a huge page of the result is touched by one thread, and giving pages back is rarely asked for.
  const int64_t grain = std::max<int64_t>(1, (int64_t{2} << 20) / (panel_size<E>(in) * static_cast<int64_t>(sizeof(E))));
  pack_panels(row, in, data<E>(packed), grain, [&](int64_t begin, int64_t end) {
    if (mapped) forget_rows(row.data() + begin, end - begin, in);
  });
  return packed;
}

at::Tensor pack_linear(at::TensorList weights_OD, bool mapped) {
  const at::ScalarType dtype = weights_OD[0].scalar_type();
  std::vector<at::Tensor> weights;
  for (const at::Tensor& w : weights_OD) {
    if (w.dim() != 2 || w.numel() == 0 || w.scalar_type() != dtype || w.size(1) != weights_OD[0].size(1) || (dtype != at::kBFloat16 && dtype != at::kFloat)) return {};
    weights.push_back(w.stride(1) == 1 ? w : w.contiguous());
    mapped = mapped && weights.back().is_same(w);
  }
  if (mapped && isa() != Isa::Amx) {
    if (weights.size() > 1) return at::empty({0}, dtype);  // they lie apart: each for itself
    populate_mapped(weights[0].data_ptr(), static_cast<int64_t>(weights[0].nbytes()));
    return weights[0];
  }
  return dtype == at::kFloat ? pack<float>(weights, mapped) : pack<bf16>(weights, mapped);
}

// y [m, n] of x [m, k] (rows ldx apart) and packed panels.
template <class E>
void multiply(const E* x, int64_t ldx, int64_t m, int64_t k, const E* packed, const float* bias, E* y, int64_t n) {
  const int64_t panels = (n + kPanel - 1) / kPanel, depth = padded_depth<E>(k);
  const int64_t row_blocks = (m + kRowBlock - 1) / kRowBlock, block = (m + row_blocks - 1) / row_blocks;
  const int64_t chunk = std::clamp<int64_t>(panels * row_blocks / (threads() * 6), 1, kChunkPanels), chunks = (panels + chunk - 1) / chunk;
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

// y [m, n] of x [m, k] (rows ldx apart) and the n rows of w (ldw apart).
template <class E>
void multiply_in_place(const E* x, int64_t ldx, int64_t m, int64_t k, const E* w, int64_t ldw, const float* bias, E* y, int64_t n) {
  const int64_t row_blocks = (m + kRowBlock - 1) / kRowBlock, block = (m + row_blocks - 1) / row_blocks;
  const int64_t chunk = std::clamp<int64_t>(n / (threads() * 6) / kPanel * kPanel, kPanel, m == 1 ? 512 : 128), chunks = (n + chunk - 1) / chunk;
  share(row_blocks * chunks, 1, [&](int64_t begin, int64_t end) {
    const RowKernels<E>& kernel = row_kernels<E>();
    float *sums = scratch(kSums, chunk * block), *space = scratch(kLaidOut, std::max(k + 32, kDotStretch * kDotBatch));
    for (int64_t item = begin; item < end; ++item) {
      const int64_t row = item % row_blocks * block, rows = std::min(block, m - row);
      const int64_t first = item / row_blocks * chunk, columns = std::min(chunk, n - first);
      kernel.dots(rows, columns, k, x + row * ldx, ldx, w + first * ldw, ldw, sums, chunk, space);
      kernel.finish(rows, columns, sums, chunk, bias ? bias + first : nullptr, y + row * n + first, n);
    }
  });
}

template <class E>
at::Tensor multiply_tensors(const at::Tensor& x, const at::Tensor& packed, const OptionalTensor& bias, int64_t out) {
  const int64_t in = x.size(-1), depth = padded_depth<E>(in);
  const bool in_place = packed.dim() == 2;
  require(in_place ? packed.size(0) == out && packed.size(1) == in : packed.numel() == (out + kPanel - 1) / kPanel * panel_size<E>(in), Fault::Bug,
          "packed_linear: ", packed.numel(), " packed elements are not those of a weight of ", out, " x ", in);
  at::Tensor rows = as_rows(x);
  if (depth != in && !in_place) {  // the filling must be there to read, and finite
    at::Tensor filled = at::zeros({rows.size(0), depth}, x.options());
    filled.narrow(1, 0, in).copy_(rows);
    rows = filled;
  }
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = out;
  const at::Tensor y = at::empty(shape, x.options());
  const float* wide_bias = nullptr;
  if (bias.has_value() && bias->defined()) {
    require(bias->numel() == out && bias->scalar_type() == x.scalar_type(), Fault::Bug, "packed_linear: bias of another size or type");
    float* wide = scratch(kBias, out);
    const at::Tensor flat = bias->contiguous();
    row_kernels<E>().widen(out, data<E>(flat), wide);
    wide_bias = wide;
  }
  if (y.numel() == 0) return y;
  if (in_place)
    multiply_in_place<E>(data<E>(rows), rows.stride(0), rows.size(0), in, data<E>(packed), packed.stride(0), wide_bias, data<E>(y), out);
  else
    multiply<E>(data<E>(rows), rows.stride(0), rows.size(0), in, data<E>(packed), wide_bias, data<E>(y), out);
  return y;
}

at::Tensor packed_linear(const at::Tensor& x, const at::Tensor& packed, const OptionalTensor& bias, int64_t out) {
  require(x.scalar_type() == packed.scalar_type(), Fault::Bug, "packed_linear: x is ", c10::toString(x.scalar_type()),
          ", the packed weight ", c10::toString(packed.scalar_type()));
  return packed.scalar_type() == at::kFloat ? multiply_tensors<float>(x, packed, bias, out) : multiply_tensors<bf16>(x, packed, bias, out);
}

}  // namespace
}  // namespace apus::cpu

TORCH_LIBRARY_IMPL(apus, CPU, m) {
  m.impl("pack_linear", apus::cpu::pack_linear);
  m.impl("packed_linear", apus::cpu::packed_linear);
}
