// SPDX-License-Identifier: Apache-2.0
// A hidden state of several streams, as data. No tensor library; nn/streams.h computes it.
#pragma once

#include <cstdint>

namespace apus {

struct StreamsForm {
  int64_t count = 0;
  // The most that a stream takes of what a branch gives; and what is added to all weights.
  double reach = 2, eps = 1e-6;
};

}  // namespace apus
