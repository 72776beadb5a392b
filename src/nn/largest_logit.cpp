// SPDX-License-Identifier: Apache-2.0
#include "nn/largest_logit.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/maximum.h>

#include <utility>

namespace apus {

void LargestLogit::look(const at::Tensor& q_TNH, const at::Tensor& k_TKH, double scale) {
  const at::NoGradGuard no_grad;
  const auto longest = [](const at::Tensor& x) { return x.detach().to(at::kFloat).square().sum(-1).amax().sqrt_(); };
  const at::Tensor here = longest(q_TNH) * longest(k_TKH) * scale;
  largest_ = largest_.defined() ? at::maximum(largest_, here.to(largest_.device())) : here;
}

double LargestLogit::take() {
  const at::Tensor seen = std::exchange(largest_, {});
  return seen.defined() ? seen.item<double>() : 0;
}

}  // namespace apus
