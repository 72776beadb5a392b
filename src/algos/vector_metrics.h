// SPDX-License-Identifier: Apache-2.0
// How good vectors of texts are, over all rows of an evaluation: retrieval, and agreement with labels.
#pragma once

#include <vector>

#include "algos/vector_losses.h"
#include "base/json.h"

namespace apus {

// Of queries and documents: mean_pos and mean_neg, the mean likeness to the right document and to others; margin, the
// mean lead of the right one before the likest other; recall@1 and mrr. own_only: the
// documents of the query's row alone.
Json retrieval_metrics(const VectorSet& set, bool own_only);

// Pearson's and Spearman's correlation; 0 where one side does not vary.
double pearson(const std::vector<double>& x, const std::vector<double>& y);
double spearman(const std::vector<double>& x, const std::vector<double>& y);

// Of pairs [P, D] and their labels: both correlations of the labels with cosine, dot product and the negated Euclidean
// and Manhattan distances.
Json pair_metrics(const at::Tensor& first_PD, const at::Tensor& second_PD, const std::vector<double>& labels);

}  // namespace apus
