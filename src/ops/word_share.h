// SPDX-License-Identifier: Apache-2.0
// How ranks share out the words of a vocabulary: the rows of embedding and head.
#pragma once

#include <cstdint>

#include "device/comm.h"

namespace apus::ops {

struct WordShare {
  Comm* ranks;    // who share it out; they are given the same tokens
  int64_t first;  // the word of this rank's first row
  int64_t words;  // of all ranks
  // Of one of them: the first words % ranks have one more than the rest.
  int64_t words_of(int64_t rank) const { return words / ranks->size() + (rank < words % ranks->size()); }
};

}  // namespace apus::ops
