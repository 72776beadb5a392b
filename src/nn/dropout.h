// SPDX-License-Identifier: Apache-2.0
// Dropout whose mask is a function of the step, the layer and the place: never kept, made again in the backward pass.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>

#include "base/random.h"
#include "nn/module.h"
#include "nn/row_origins.h"
#include "nn/token_share.h"
#include "nn/training_step.h"
#include "tensor/noise.h"

namespace apus {

struct Dropout {
  double p = 0;
  uint64_t seed = 0;
  int64_t row = 0;  // of all tokens: the first one here
  // Of all numbers of a token: the first one here, and how many there are. 0: all are here.
  int64_t column = 0, columns = 0;
  uint64_t id = 0;
  // Where the rows here stand among all, where that is not one behind the other.
  std::shared_ptr<const RowOrigins> origins = {};
  static Dropout of(double p, uint64_t id, const Step& s) {
    const uint64_t seed = training_of(s).dropout_seed;
    const auto& share = training_of(s).tokens;
    if (seed == 0 || p == 0) return {};
    return {.p = p,
            .seed = mix(seed, id, 0),
            .row = share ? share->own().begin : 0,
            .id = id,
            .origins = share && !training_of(s).origins ? share->origins(seed) : training_of(s).origins};
  }
  // Of what a factor [r, in] is given: where ranks share out its inputs, the mask is a part of the whole one.
  static Dropout of(double p, uint64_t id, const Step& s, const Param& factor) {
    Dropout drop = of(p, id, s);
    const Range& in = factor.part[1];
    if (in.size != factor.full[1]) drop.column = in.begin, drop.columns = factor.full[1];
    return drop;
  }
  at::Tensor operator()(const at::Tensor& x) const {  // not scaled
    if (p <= 0) return x;
    // Rows of experts on ranks that share tokens are others, whose masks are not those of one process.
    if (origins && origins->rows() == x.size(0)) return x * mask_of_origins(x);
    if (columns == 0) return dropped(x, p, seed, row * x.size(-1));
    const at::Tensor mask = dropped(at::ones({x.size(0), columns}, x.options()), p, seed, row * columns);
    return x * mask.narrow(1, column, x.size(-1));
  }
  at::Tensor mask_of_origins(const at::Tensor& x) const {
    const int64_t width = columns ? columns : x.size(-1);
    std::vector<at::Tensor> masks;
    for (const RowOrigins::Part& part : origins->parts)
      masks.push_back(
          dropped(at::ones({part.rows(), width}, x.options()), p, mix(part.seed, id, 0), part.first * width));
    at::Tensor mask = at::cat(masks, 0);
    if (origins->order_m.defined()) mask = at::index_select(mask, 0, origins->order_m);
    return columns ? mask.narrow(1, column, x.size(-1)) : mask;
  }
  double factor() const { return 1 / (1 - p); }
};

}  // namespace apus
