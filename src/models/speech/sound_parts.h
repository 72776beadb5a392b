// SPDX-License-Identifier: Apache-2.0
// What several makers and readers of sound have in common.
#pragma once

#include <ATen/TensorOperators.h>

namespace apus {

// x + sin(a x)^2 / b, with a and b of each channel, whose logarithms are given.
inline at::Tensor snake(const at::Tensor& x_1CT, const at::Tensor& log_a_C, const at::Tensor& log_b_C) {
  const at::Tensor wave = (x_1CT * log_a_C.exp().unsqueeze(1)).sin_();
  return x_1CT + wave.square_() / (log_b_C.exp().unsqueeze(1) + 1e-9);
}

// A codebook is kept as sums of what its words stood for, and how often each did -> the words' means.
inline at::Tensor book_rows(const at::Tensor& sum_WD, const at::Tensor& use_W) {
  constexpr double kLeastUse = 1e-5;
  return sum_WD / use_W.clamp_min(kLeastUse).unsqueeze(1);
}

}  // namespace apus
