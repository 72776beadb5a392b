// SPDX-License-Identifier: Apache-2.0
// How a norm brings vectors to one size. No tensor library here; nn/norm.h computes them.
#pragma once

namespace apus {

// Rms: x / rms(x) * w. RmsFromOne: x / rms(x) * (1 + w). Mean: (x - mean(x)) / deviation(x) * w, MeanAndBias: + b.
// MeanFromOneAndBias: the same with (1 + w). RmsAlone, MeanAlone: without any weight.
enum class NormKind { Rms, RmsFromOne, RmsAlone, Mean, MeanAndBias, MeanFromOneAndBias, MeanAlone };

constexpr bool has_weight(NormKind kind) { return kind != NormKind::RmsAlone && kind != NormKind::MeanAlone; }
constexpr bool has_bias(NormKind kind) { return kind == NormKind::MeanAndBias || kind == NormKind::MeanFromOneAndBias; }
constexpr bool counts_from_one(NormKind kind) {
  return kind == NormKind::RmsFromOne || kind == NormKind::MeanFromOneAndBias;
}
constexpr bool takes_mean_off(NormKind kind) {
  return kind == NormKind::Mean || kind == NormKind::MeanAlone || has_bias(kind);
}

struct NormSpec {
  NormKind kind = NormKind::Rms;
  double eps = 1e-6;
};

}  // namespace apus
