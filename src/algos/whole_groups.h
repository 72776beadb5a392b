// SPDX-License-Identifier: Apache-2.0
// Rewards are compared within a group. Where neighbouring ranks give the answers of a group together, each of them gets
// what the others' were worth.
#pragma once

#include "algos/advantages.h"
#include "algos/answers.h"

namespace apus {

struct WholeGroups {
  ScoredAnswers scored;  // of all sharers, by rank; weights are left empty
  size_t first = 0;      // where this rank's answers begin among them
};

// Called by all `ranks` alike where `sharers` > 1: groups of so many neighbours have the answers of the same questions,
// in the order of their ranks. With one sharer nothing is sent, and `ranks` may be null. `functions`: so many of each
// answer's rewards are taken along.
WholeGroups whole_groups(const std::vector<Answer>& mine, size_t functions, Comm* ranks, int64_t sharers);

}  // namespace apus
