// SPDX-License-Identifier: Apache-2.0
#include "engine/rows.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include "tensor/upload.h"

namespace apus {

at::Tensor rows_of(const at::Tensor& all, const std::vector<int64_t>& rows) {
  constexpr size_t kMostRuns = 32;
  std::vector<at::Tensor> runs;
  for (size_t begin = 0, end = 0; begin < rows.size() && runs.size() <= kMostRuns; begin = end) {
    for (++end; end < rows.size() && rows[end] == rows[end - 1] + 1;) ++end;
    runs.push_back(all.narrow(0, rows[begin], static_cast<int64_t>(end - begin)));
  }
  if (runs.size() == 1) return runs[0];
  if (runs.size() <= kMostRuns) return at::cat(runs, 0);
  return at::index_select(all, 0, uploaded(at::tensor(rows, at::kLong), all.device()));
}

}  // namespace apus
