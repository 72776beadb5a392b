// SPDX-License-Identifier: Apache-2.0
// Panels (kernels.h) whose columns are rows of weights.
#pragma once

#include <ATen/core/Tensor.h>

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

}  // namespace apus::cpu
