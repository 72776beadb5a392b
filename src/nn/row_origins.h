// SPDX-License-Identifier: Apache-2.0
// Where rows of tokens come from that were sorted by expert, maybe on other ranks: their dropout masks are those of the
// place that they had there, as if nothing had been sent.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <numeric>
#include <vector>

namespace apus {

struct RowOrigins {
  struct Part {
    uint64_t seed = 0;           // of the micro-batch that they are of
    int64_t first = 0;           // the place of the first one among that micro-batch's rows
    std::vector<int64_t> count;  // of each expert here
    int64_t rows() const { return std::accumulate(count.begin(), count.end(), int64_t{0}); }
  };
  std::vector<Part> parts;
  at::Tensor order_m;  // where the rows here stand among those of the parts, one behind the other; undefined: as those

  int64_t rows() const {
    int64_t all = 0;
    for (const Part& part : parts) all += part.rows();
    return all;
  }
  // Of one expert's rows, which are counted from its own first one.
  RowOrigins of_expert(size_t e) const {
    RowOrigins out;
    for (const Part& part : parts) out.parts.push_back({.seed = part.seed, .first = 0, .count = {part.count.at(e)}});
    return out;
  }
};

}  // namespace apus
