// SPDX-License-Identifier: Apache-2.0
#include "algos/rank_losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>

namespace apus {

std::vector<int64_t> list_begins(const std::vector<float>& wanted) {
  std::vector<int64_t> begins;
  for (size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i] == 1) begins.push_back(static_cast<int64_t>(i));
  return begins;
}

at::Tensor listwise_losses(const at::Tensor& score_N, const std::vector<int64_t>& begins, double temperature,
                           int64_t least) {
  std::vector<at::Tensor> losses;
  for (size_t i = 0; i < begins.size(); ++i) {
    const int64_t end = i + 1 < begins.size() ? begins[i + 1] : score_N.size(0), length = end - begins[i];
    if (length < least) continue;
    const at::Tensor scaled = score_N.narrow(0, begins[i], length) / temperature;
    losses.push_back(at::logsumexp(scaled, 0) - scaled[0]);
  }
  return losses.empty() ? at::zeros({0}, score_N.options()) : at::stack(losses);
}

RankQuality rank_quality(const std::vector<float>& scores) {
  double rank = 1;
  for (size_t i = 1; i < scores.size(); ++i) rank += scores[i] >= scores[0];
  return {1 / rank, 1 / std::log2(rank + 1)};
}

}  // namespace apus
