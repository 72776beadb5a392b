// SPDX-License-Identifier: Apache-2.0
// Dropout whose mask is a function of the step, the layer and the place: never kept, made again in the backward pass.
#pragma once

#include "base/random.h"
#include "nn/token_share.h"
#include "nn/training_step.h"
#include "tensor/noise.h"

namespace apus {

struct Dropout {
  double p = 0;
  uint64_t seed = 0;
  int64_t row = 0;  // of all tokens: the first one here
  static Dropout of(double p, uint64_t id, const Step& s) {
    const uint64_t seed = training_of(s).dropout_seed;
    const auto& share = training_of(s).tokens;
    return seed == 0 || p == 0 ? Dropout{} : Dropout{p, mix(seed, id, 0), share ? share->own().begin : 0};
  }
  at::Tensor operator()(const at::Tensor& x) const {  // not scaled
    return p > 0 ? dropped(x, p, seed, row * x.size(-1)) : x;
  }
  double factor() const { return 1 / (1 - p); }
};

}  // namespace apus
