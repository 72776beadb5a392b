// SPDX-License-Identifier: Apache-2.0
// Panels (kernels.h) whose columns are rows of weights.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "devices/cpu/kernels/kernels.h"
#include "devices/cpu/ops/tensors.h"
#include "devices/cpu/parallel.h"

namespace apus::cpu {

// Where the rows of several weights lie.
template <class E>
std::vector<const E*> rows_of(at::TensorList weights) {
  std::vector<const E*> row;
  for (const at::Tensor& w : weights)
    for (int64_t i = 0; i < w.size(0); ++i) row.push_back(data<E>(w) + i * w.stride(0));
  return row;
}

// Packs the rows, `in` elements each, `grain` panels or more to a thread at a time.
template <class E>
void pack_panels(const std::vector<const E*>& row, int64_t in, E* packed, int64_t grain) {
  const auto out = static_cast<int64_t>(row.size());
  share((out + kPanel - 1) / kPanel, grain, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel)
      row_kernels<E>().pack_columns(row.data() + panel * kPanel, std::min(kPanel, out - panel * kPanel), in,
                                    packed + panel * panel_size<E>(in));
  });
}

constexpr int64_t kFewRows = 16;   // that fit into one tile
constexpr int64_t kManyRows = 96;  // from here on turning weights (lanes.h) pays

// The rows of x [m, k] as the columns of panels.
inline at::Tensor packed_as_columns(const bf16* x, int64_t ldx, int64_t m, int64_t k) {
  const at::Tensor packed = at::empty({(m + kPanel - 1) / kPanel * panel_size<bf16>(k)}, at::kBFloat16);
  std::vector<const bf16*> row(m);
  for (int64_t i = 0; i < m; ++i) row[i] = x + i * ldx;
  pack_panels(row, k, data<bf16>(packed), 1);
  return packed;
}

// Few rows of x as multiply_few reads them (kernels.h): pairs of inputs of each, filled up with zeros. A single row is
// as it should be. In the scratch memory of this slot.
inline const bf16* paired_rows(const bf16* x, int64_t ldx, int64_t m, int64_t k, int slot) {
  const int64_t depth = padded_depth<bf16>(k);
  if (m == 1 && k == depth) return x;
  auto* pairs = reinterpret_cast<bf16*>(scratch(slot, m * depth / 2));
  if (k < depth) std::fill_n(pairs, m * depth, bf16{0});
  for (int64_t i = 0; i < k; i += 2)
    for (int64_t r = 0; r < m; ++r) std::copy_n(x + r * ldx + i, std::min<int64_t>(2, k - i), pairs + i * m + 2 * r);
  return pairs;
}

}  // namespace apus::cpu
