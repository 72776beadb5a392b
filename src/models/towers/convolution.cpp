// SPDX-License-Identifier: Apache-2.0
#include "models/towers/convolution.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>
#include <vector>

#include "ops/ops.h"

namespace apus {

Sweep even_sweep(int64_t high, int64_t wide, int64_t side, int64_t step) {
  const auto zeros = [&](int64_t size) { return std::max<int64_t>((size - 1) / step * step + side - size, 0); };
  const int64_t lines = zeros(high), columns = zeros(wide);
  return {.top = lines / 2,
          .bottom = lines - lines / 2,
          .left = columns / 2,
          .right = columns - columns / 2,
          .down = step,
          .across = step};
}

namespace {
// Of each of the weight's places what it meets, [B, H', W', C], line by line.
std::vector<at::Tensor> met(const at::Tensor& x_BHWC, const at::Tensor& weight, const Sweep& s) {
  const at::Tensor padded = at::constant_pad_nd(x_BHWC, {0, 0, s.left, s.right, s.top, s.bottom});
  const int64_t high = weight.size(2), wide = weight.size(3);
  const int64_t h = (padded.size(1) - high) / s.down + 1, w = (padded.size(2) - wide) / s.across + 1;
  std::vector<at::Tensor> all;
  for (int64_t i = 0; i < high; ++i)
    for (int64_t j = 0; j < wide; ++j)
      all.push_back(
          padded.slice(1, i, i + (h - 1) * s.down + 1, s.down).slice(2, j, j + (w - 1) * s.across + 1, s.across));
  return all;
}
}  // namespace

at::Tensor convolved(const at::Tensor& x_BHWC, const at::Tensor& weight, const at::Tensor& bias, const Sweep& sweep) {
  const at::Tensor rows = at::cat(met(x_BHWC, weight, sweep), 3);
  const at::Tensor y =
      ops::linear(rows.reshape({-1, rows.size(3)}), weight.permute({0, 2, 3, 1}).reshape({weight.size(0), -1}), bias);
  return y.reshape({rows.size(0), rows.size(1), rows.size(2), weight.size(0)});
}

at::Tensor convolved_apart(const at::Tensor& x_BHWC, const at::Tensor& weight, const Sweep& sweep) {
  const at::Tensor each_NC = weight.flatten(1).t();
  at::Tensor sum;
  int64_t place = 0;
  for (const at::Tensor& own : met(x_BHWC, weight, sweep)) {
    const at::Tensor y = own * each_NC[place++];
    sum = sum.defined() ? sum + y : y;
  }
  return sum;
}

at::Tensor convolved(const at::Tensor& x_BHWC, const Table& table, int64_t stride) {
  at::Tensor weight = table.weight();
  if (weight.dim() == 3) weight = weight.unsqueeze(2);  // over a line: [out, C, 1, n]
  const int64_t high = weight.size(2), wide = weight.size(3);
  return convolved(x_BHWC, weight, table.bias(),
                   {.top = high / 2,
                    .bottom = high / 2,
                    .left = wide / 2,
                    .right = wide / 2,
                    .down = high > 1 ? stride : 1,
                    .across = stride});
}

}  // namespace apus
