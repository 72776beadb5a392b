// SPDX-License-Identifier: Apache-2.0
// How a norm brings vectors to one size. No tensor library here; nn/norm.h computes them.
#pragma once

namespace apus {

// Rms: x / rms(x) * w. RmsFromOne: x / rms(x) * (1 + w). Mean: (x - mean(x)) / deviation(x) * w, MeanAndBias: + b.
enum class NormKind { Rms, RmsFromOne, Mean, MeanAndBias };

struct NormSpec {
  NormKind kind = NormKind::Rms;
  double eps = 1e-6;
};

}  // namespace apus
