// SPDX-License-Identifier: Apache-2.0
// The few tokens of a whole update that a loss treats apart: those of the highest values, over all micro-batches and
// ranks. Ranks call these functions together, each with the values of its micro-batches. `over_ranks`: sums over them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "algos/advantages.h"

namespace apus {

// Of each micro-batch's values, [N]: which are picked, bool [N].
using TokenPicks = std::vector<at::Tensor>;

// The `share` of all tokens, at least one, with the highest values that are finite. Equal ones are picked together;
// none where all are equal, as nothing stands out then.
TokenPicks highest_tokens(const std::vector<at::Tensor>& values, double share, const RankSum& over_ranks);

// The tokens whose entropy is in the upper `share`: those at or above that quantile.
TokenPicks most_uncertain(const std::vector<at::Tensor>& entropies, double share, const RankSum& over_ranks);

// The mean over all tokens.
double mean_of_update(const std::vector<at::Tensor>& values, const RankSum& over_ranks);

}  // namespace apus
