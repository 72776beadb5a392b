// SPDX-License-Identifier: Apache-2.0
// Linear layers with packed weights: panels of 32 outputs (kernels.h), read once per 256 rows. Every output is one chain of
// additions over the inputs in rising order, so a row's result does not depend on the other rows.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>

#include "base/error.h"
#include "devices/cpu/kernels.h"
#include "devices/cpu/memory.h"
#include "devices/cpu/parallel.h"
#include "devices/cpu/tensors.h"
#include "tensor/compat.h"

namespace apus::cpu {
namespace {

enum Slot { kBias, kSums };
constexpr int64_t kRowBlock = 256, kChunkPanels = 8, kDepthBlock = 512;

template <class E>
void pack(const at::Tensor& weight_OD, E* packed) {
  const int64_t out = weight_OD.size(0), in = weight_OD.size(1), stride = weight_OD.stride(0);
  const E* weight = data<E>(weight_OD);
  share((out + kPanel - 1) / kPanel, 4, [&](int64_t begin, int64_t end) {
    const E* rows[kPanel];
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t first = panel * kPanel, n = std::min(kPanel, out - first);
      for (int64_t i = 0; i < n; ++i) rows[i] = weight + (first + i) * stride;
      row_kernels<E>().pack_columns(rows, n, in, packed + panel * panel_size<E>(in));
    }
  });
}

at::Tensor pack_linear(const at::Tensor& weight_OD) {
  const at::ScalarType dtype = weight_OD.scalar_type();
  if (weight_OD.dim() != 2 || weight_OD.numel() == 0 || (dtype != at::kBFloat16 && dtype != at::kFloat)) return {};
  const at::Tensor weight = weight_OD.stride(1) == 1 ? weight_OD : weight_OD.contiguous();
  const int64_t panels = (weight.size(0) + kPanel - 1) / kPanel, in = weight.size(1);
  if (dtype == at::kFloat) {
    const at::Tensor packed = empty_huge(panels * panel_size<float>(in), dtype);
    pack(weight, data<float>(packed));
    return packed;
  }
  const at::Tensor packed = empty_huge(panels * panel_size<bf16>(in), dtype);
  pack(weight, data<bf16>(packed));
  return packed;
}

// y [m, n] of x [m, k] (rows ldx apart) and packed panels.
template <class E>
void multiply(const E* x, int64_t ldx, int64_t m, int64_t k, const E* packed, const float* bias, E* y, int64_t n) {
  const int64_t panels = (n + kPanel - 1) / kPanel, depth = padded_depth<E>(k);
  const int64_t row_blocks = (m + kRowBlock - 1) / kRowBlock, block = (m + row_blocks - 1) / row_blocks;
  const int64_t chunk = std::clamp<int64_t>(panels / (threads() * 6), 1, kChunkPanels), chunks = (panels + chunk - 1) / chunk;
  const int64_t depth_block = m <= 32 ? depth : kDepthBlock;
  share(row_blocks * chunks, 1, [&](int64_t begin, int64_t end) {
    const Multiplying guard;
    const RowKernels<E>& kernel = row_kernels<E>();
    float* sums = scratch(kSums, chunk * block * kPanel);  // [panel][row][32]
    for (int64_t item = begin; item < end; ++item) {
      const int64_t row = item % row_blocks * block, rows = std::min(block, m - row);
      const int64_t first = item / row_blocks * chunk, last = std::min(first + chunk, panels);
      for (int64_t d = 0; d < depth; d += depth_block)
        for (int64_t p = first; p < last; ++p) {
          const E* panel = packed + p * panel_size<E>(k) + d * kPanel;
          kernel.multiply(rows, std::min(depth_block, depth - d), x + row * ldx + d, ldx, panel, sums + (p - first) * block * kPanel, kPanel,
                          d > 0, panel + panel_size<E>(k));
        }
      for (int64_t p = first; p < last; ++p)
        kernel.finish(rows, std::min(kPanel, n - p * kPanel), sums + (p - first) * block * kPanel, kPanel,
                      bias ? bias + p * kPanel : nullptr, y + row * n + p * kPanel, n);
    }
  });
}

template <class E>
at::Tensor multiply_tensors(const at::Tensor& x, const at::Tensor& packed, const OptionalTensor& bias, int64_t out) {
  const int64_t in = x.size(-1), depth = padded_depth<E>(in);
  require(packed.numel() == (out + kPanel - 1) / kPanel * panel_size<E>(in), Fault::Bug, "packed_linear: ", packed.numel(),
          " packed elements are not those of a weight of ", out, " x ", in);
  at::Tensor rows = as_rows(x);
  if (depth != in) {  // the filling must be there to read, and finite
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
  if (y.numel()) multiply<E>(data<E>(rows), rows.stride(0), rows.size(0), in, data<E>(packed), wide_bias, data<E>(y), out);
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
