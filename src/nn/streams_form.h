// SPDX-License-Identifier: Apache-2.0
// A hidden state of several streams, as data. No tensor library; nn/streams.h computes it.
#pragma once

#include <cstdint>

namespace apus {

struct StreamsForm {
  int64_t count = 0;
  // The most that a stream takes of what a branch gives; and what is added to all weights.
  double reach = 2, eps = 1e-6;
  // Above 0: streams are mixed among themselves too, by shares whose sums over either side so many rounds bring to 1.
  int64_t rounds = 0;

  // The numbers that a branch's streams say: what it reads of each, what it gives to each, what each takes of each.
  int64_t said() const { return 2 * count + (rounds > 0 ? count * count : 0); }
  int64_t scales() const { return rounds > 0 ? 3 : 2; }
};

}  // namespace apus
