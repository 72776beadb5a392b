// SPDX-License-Identifier: Apache-2.0
// A hidden state of several streams, of which one goes through a layer and corrects the others (AltUp), and the narrow
// path beside attention (LAuReL), as data. No tensor library; nn/altup.h computes them.
#pragma once

#include <cstdint>

namespace apus {

struct AltUpForm {
  int64_t count = 0;
  // The stream that goes through layers.
  int64_t active = 0;
  // Above 0: training keeps the weights that mix streams within it.
  double bound = 0;
  // The active stream is multiplied by learnt numbers before it opens what the layer itself is given.
  bool scaled = true;
  // The width of the narrow path.
  int64_t rank = 0;
};

}  // namespace apus
