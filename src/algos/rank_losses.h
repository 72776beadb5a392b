// SPDX-License-Identifier: Apache-2.0
// Losses of models that rate how well a document answers a query, and what a ranking is worth. Documents stand in
// lists: one that answers the query, and behind it those that do not.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace apus {

// The places in a batch where lists begin: where `wanted` is 1.
std::vector<int64_t> list_begins(const std::vector<float>& wanted);

// The cross-entropy of finding the first document of each list among all of it, [L]. Lists shorter than `least` are
// left out.
at::Tensor listwise_losses(const at::Tensor& score_N, const std::vector<int64_t>& begins, double temperature,
                           int64_t least);

struct RankQuality {
  double reciprocal_rank = 0, ndcg = 0;
};
// Of one list, whose first document should come first. One of equal score counts as before it.
RankQuality rank_quality(const std::vector<float>& scores);

}  // namespace apus
