// SPDX-License-Identifier: Apache-2.0
#include "models/towers/convolution.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>

#include <vector>

#include "ops/ops.h"

namespace apus {

at::Tensor convolved(const at::Tensor& x_BHWC, const Table& table, int64_t stride) {
  at::Tensor weight = table.weight();
  if (weight.dim() == 3) weight = weight.unsqueeze(2);  // over a line: [out, C, 1, n]
  const int64_t high = weight.size(2), wide = weight.size(3);
  const int64_t h = (x_BHWC.size(1) - 1) / (high > 1 ? stride : 1) + 1, w = (x_BHWC.size(2) - 1) / stride + 1;
  const at::Tensor padded = at::constant_pad_nd(x_BHWC, {0, 0, wide / 2, wide / 2, high / 2, high / 2});
  std::vector<at::Tensor> neighbours;
  for (int64_t i = 0; i < high; ++i)
    for (int64_t j = 0; j < wide; ++j)
      neighbours.push_back(padded.slice(1, i, i + (h - 1) * stride + 1, high > 1 ? stride : 1)
                               .slice(2, j, j + (w - 1) * stride + 1, stride));
  const at::Tensor rows = at::cat(neighbours, 3);
  const at::Tensor y = ops::linear(rows.reshape({-1, rows.size(3)}),
                                   weight.permute({0, 2, 3, 1}).reshape({weight.size(0), -1}), table.bias());
  return y.reshape({x_BHWC.size(0), h, w, weight.size(0)});
}

}  // namespace apus
