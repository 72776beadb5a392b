// SPDX-License-Identifier: Apache-2.0
// Linear layers with quantised weights (ops/quantised.cpp). Of 32 outputs, a stretch of the weight is made plain, which
// the first-level cache holds, and multiplied by all rows: the products, and the order of their additions, are those of
// plain weights that lie in a file (linear.cpp). One row pays for reading codes, and many for one conversion.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "devices/cpu/ops/codes.h"
#include "devices/cpu/ops/panels.h"
#include "devices/cpu/ops/tensors.h"
#include "devices/cpu/parallel.h"
#include "ops/quantised.h"
#include "tensor/compat.h"

namespace apus::cpu {
namespace {

enum CodedSlot { kCodedBias, kCodedSums, kCodedPlain, kCodedRows };
constexpr int64_t kCodedRowBlock = 512;

struct CodedProduct {
  const bf16* x;
  int64_t ldx, m;
  const Codes& codes;
  const float* bias;  // null: none
  bf16* y;

  int64_t in() const { return codes.columns(); }
  int64_t out() const { return codes.rows(); }
  int64_t panels() const { return (out() + kPanel - 1) / kPanel; }
  int64_t outputs(int64_t panel) const { return std::min(kPanel, out() - panel * kPanel); }
  const float* bias_of(int64_t panel) const { return bias ? bias + panel * kPanel : nullptr; }
  int64_t together() const { return std::clamp<int64_t>(panels() / (threads() * 8), 1, 8); }
};

bf16* plain_space(int64_t elements) { return reinterpret_cast<bf16*>(scratch(kCodedPlain, elements / 2)); }

// On tiles, up to 16 rows of x (linear.cpp's multiply_few_by_tiles).
void coded_few_by_tiles(const CodedProduct& p) {
  const int64_t depth = padded_depth<bf16>(p.in());
  const bf16* pairs = paired_rows(p.x, p.ldx, p.m, p.in(), kCodedRows);
  share(p.panels(), p.together(), [&](int64_t begin, int64_t end) {
    const Multiplying guard;
    float* sums = scratch(kCodedSums, kPanel * p.m + 16);
    bf16* const plain = plain_space(kPanel * kCodeStretch);
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t outputs = p.outputs(panel);
      for (int64_t d = 0; d < depth; d += kCodeStretch) {
        const int64_t here = std::min(kCodeStretch, depth - d);
        p.codes.plain(panel * kPanel, outputs, d, here, plain, here);
        kernels().multiply_few(outputs, here, plain, here, pairs + d * p.m, p.m, sums, d > 0);
      }
      if (p.m == 1)
        kernels().b16.finish(1, outputs, sums, outputs, p.bias_of(panel), p.y + panel * kPanel, p.out());
      else
        kernels().finish_turned(outputs, p.m, sums, p.m, p.bias_of(panel), p.y + panel * kPanel, p.out());
    }
  });
}

// On tiles, any number of rows (linear.cpp's multiply_by_tiles).
void coded_by_tiles(const CodedProduct& p) {
  const at::Tensor columns = packed_as_columns(p.x, p.ldx, p.m, p.in());
  const auto* const packed = data<bf16>(columns);
  const int64_t depth = padded_depth<bf16>(p.in()), row_panels = (p.m + kPanel - 1) / kPanel,
                block = std::min(row_panels, kCodedRowBlock / kPanel), blocks = (row_panels + block - 1) / block;
  share(blocks * p.panels(), 1, [&](int64_t begin, int64_t end) {
    const Multiplying guard;
    float* const sums = scratch(kCodedSums, block * kPanel * kPanel);  // [row panel][output][32 rows]
    bf16* const plain = plain_space(kPanel * kCodeStretch);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t panel = item / blocks, outputs = p.outputs(panel), first = item % blocks * block,
                    last = std::min(first + block, row_panels);
      const auto rows = [&](int64_t r) { return std::min(kPanel, p.m - r * kPanel); };
      for (int64_t d = 0; d < depth; d += kCodeStretch) {
        const int64_t here = std::min(kCodeStretch, depth - d);
        p.codes.plain(panel * kPanel, outputs, d, here, plain, here);
        for (int64_t r = first; r < last; ++r)
          kernels().multiply_rows(outputs, here, plain, here, packed + r * panel_size<bf16>(p.in()) + d * kPanel,
                                  rows(r), sums + (r - first) * kPanel * kPanel, d > 0, {});
      }
      for (int64_t r = first; r < last; ++r)
        kernels().finish_turned(outputs, rows(r), sums + (r - first) * kPanel * kPanel, kPanel, p.bias_of(panel),
                                p.y + r * kPanel * p.out() + panel * kPanel, p.out());
    }
  });
}

// The whole depth of 32 outputs, made plain.
const bf16* plain_panel(const CodedProduct& p, int64_t panel, int64_t apart) {
  bf16* const plain = plain_space(kPanel * apart);
  for (int64_t d = 0; d < p.in(); d += kCodeStretch)
    p.codes.plain(panel * kPanel, p.outputs(panel), d, std::min(kCodeStretch, p.in() - d), plain + d, apart);
  return plain;
}

// In vectors (dots.h).
void coded_by_dots(const CodedProduct& p) {
  const int64_t apart = padded_depth<bf16>(p.in());
  share(p.panels(), p.together(), [&](int64_t begin, int64_t end) {
    float *sums = scratch(kCodedSums, p.m * kPanel),
          *space = scratch(kCodedRows, std::max(p.in() + 32, kDotStretch * kDotBatch));
    for (int64_t panel = begin; panel < end; ++panel) {
      const bf16* const plain = plain_panel(p, panel, apart);
      const int64_t outputs = p.outputs(panel);
      kernels().b16.dots(p.m, outputs, p.in(), p.x, p.ldx, plain, apart, sums, kPanel, space);
      kernels().b16.finish(p.m, outputs, sums, kPanel, p.bias_of(panel), p.y + panel * kPanel, p.out());
    }
  });
}

// The same, bit for bit, for many rows (lanes.h).
void coded_in_lanes(const CodedProduct& p) {
  const int64_t apart = padded_depth<bf16>(p.in()), x_apart = apart + 16;
  const at::Tensor spread = at::empty({std::min(p.m, kCodedRowBlock), x_apart}, at::kFloat);
  for (int64_t row = 0; row < p.m; row += kCodedRowBlock) {
    const int64_t rows = std::min(kCodedRowBlock, p.m - row);
    share(rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        kernels().spread(p.in(), p.x + (row + i) * p.ldx, data<float>(spread) + i * x_apart);
    });
    share(p.panels(), 1, [&](int64_t begin, int64_t end) {
      float *sums = scratch(kCodedSums, rows * kPanel), *space = scratch(kCodedRows, kDotStretch * kPanel);
      for (int64_t panel = begin; panel < end; ++panel) {
        const int64_t outputs = p.outputs(panel);
        kernels().lanes(rows, outputs, p.in(), data<float>(spread), x_apart, plain_panel(p, panel, apart), apart, sums,
                        space);
        kernels().b16.finish(rows, outputs, sums, kPanel, p.bias_of(panel), p.y + row * p.out() + panel * kPanel,
                             p.out());
      }
    });
  }
}

// With x rounded to eight bits (kernels/int8.h), any number of rows.
void coded_by_int8(const CodedProduct& p) {
  const int64_t ld = p.codes.filled();
  const at::Tensor number = at::empty({p.m, ld}, at::kChar), scale = at::empty({p.m, ld / 32}, at::kFloat),
                   sum = at::empty({p.m, ld / 16}, at::kInt);
  const Int8Rows x{data<int8_t>(number), data<float>(scale), data<int32_t>(sum), ld};
  share(p.m, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      kernels().round_int8(p.in(), p.x + i * p.ldx, data<int8_t>(number) + i * ld, data<float>(scale) + i * ld / 32,
                           data<int32_t>(sum) + i * ld / 16);
  });
  const int64_t block = std::min(p.m, kCodedRowBlock), blocks = (p.m + block - 1) / block;
  share(blocks * p.panels(), p.m < kManyRows ? p.together() : 1, [&](int64_t begin, int64_t end) {
    float* const sums = scratch(kCodedSums, block * kPanel);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t panel = item / blocks, row = item % blocks * block, rows = std::min(block, p.m - row);
      const Int8Rows some{x.number + row * ld, x.scale + row * ld / 32, x.sum + row * ld / 16, ld};
      kernels().dots_int8(rows, some, p.codes.panel(panel), sums);
      kernels().b16.finish(rows, p.outputs(panel), sums, kPanel, p.bias_of(panel), p.y + row * p.out() + panel * kPanel,
                           p.out());
    }
  });
}

at::Tensor pack_codes(const at::Tensor& weight, bool int8) {
  const quant::Matrix* const matrix = ops::matrix_of(weight);
  require(matrix, Fault::Bug, "pack_codes: the weight is not quantised");
  const at::Tensor packed = weight.scalar_type() == at::kBFloat16 ? Codes::pack(*matrix, int8) : at::Tensor();
  return packed.defined() ? packed : at::empty({0}, at::kByte);
}

at::Tensor coded_linear(const at::Tensor& x, const at::Tensor& packed, const OptionalTensor& bias) {
  const Codes codes(packed);
  require(x.scalar_type() == at::kBFloat16 && x.size(-1) == codes.columns(), Fault::Bug, "coded_linear: x is ",
          c10::toString(x.scalar_type()), " with ", x.size(-1), " columns, the weight bf16 with ", codes.columns());
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = codes.rows();
  const at::Tensor y = at::empty(shape, x.options()), rows = as_rows(x);
  CodedProduct product{data<bf16>(rows), rows.stride(0), rows.size(0), codes, nullptr, data<bf16>(y)};
  if (y.numel() == 0) return y;
  if (bias.has_value() && bias->defined()) {
    require(bias->numel() == codes.rows() && bias->scalar_type() == at::kBFloat16, Fault::Bug,
            "coded_linear: bias of another size or type");
    float* const wide = scratch(kCodedBias, codes.rows());
    const at::Tensor flat = bias->contiguous();
    kernels().b16.widen(codes.rows(), data<bf16>(flat), wide);
    product.bias = wide;
  }
  if (codes.int8())
    coded_by_int8(product);
  else if (kernels().multiply_rows)
    (product.m <= kFewRows ? coded_few_by_tiles : coded_by_tiles)(product);
  else
    (product.m >= kManyRows && kernels().lanes ? coded_in_lanes : coded_by_dots)(product);
  return y;
}

at::Tensor coded_embedding(const at::Tensor& id, const at::Tensor& packed) {
  const Codes codes(packed);
  const at::Tensor ids = id.flatten().to(at::kLong).contiguous();
  const int64_t columns = codes.columns(), filled = padded_depth<bf16>(columns);
  const at::Tensor rows = at::empty({ids.numel(), filled}, at::kBFloat16);
  share(ids.numel(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = data<int64_t>(ids)[i];
      require(row >= 0 && row < codes.rows(), Fault::Bug, "row ", row, " of ", codes.rows());
      for (int64_t d = 0; d < columns; d += kCodeStretch)
        codes.plain(row, 1, d, std::min(kCodeStretch, columns - d), data<bf16>(rows) + i * filled + d, filled);
    }
  });
  std::vector<int64_t> sizes = id.sizes().vec();
  sizes.push_back(columns);
  return rows.narrow(1, 0, columns).contiguous().view(sizes);
}

// Rows [row, row + count), row a multiple of 32, as a plain tensor.
at::Tensor plain_codes(const at::Tensor& packed, int64_t row, int64_t count) {
  const Codes codes(packed);
  require(row % kPanel == 0 && row + count <= codes.rows(), Fault::Bug, "plain_codes: rows ", row, " to ", row + count,
          " of ", codes.rows());
  const int64_t columns = codes.columns(), filled = padded_depth<bf16>(columns);
  const at::Tensor out = at::empty({count, filled}, at::kBFloat16);
  share((count + kPanel - 1) / kPanel, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t d = 0; d < columns; d += kCodeStretch)
        codes.plain(row + i * kPanel, std::min(kPanel, count - i * kPanel), d, std::min(kCodeStretch, columns - d),
                    data<bf16>(out) + i * kPanel * filled + d, filled);
  });
  return filled == columns ? out : out.narrow(1, 0, columns).contiguous();
}

}  // namespace
}  // namespace apus::cpu

TORCH_LIBRARY_IMPL(apus, CPU, m) {
  m.impl("pack_codes", apus::cpu::pack_codes);
  m.impl("coded_linear", apus::cpu::coded_linear);
  m.impl("coded_embedding", apus::cpu::coded_embedding);
  m.impl("plain_codes", apus::cpu::plain_codes);
}
