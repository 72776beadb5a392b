// SPDX-License-Identifier: Apache-2.0
// Losses over the vectors of texts: those of pairs with a label, and InfoNCE, which finds a query's document among
// many. Vectors have length one.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "algos/options/embedding_options.h"

namespace apus {

// Of each pair, [P]. cosine_P: how alike its two vectors are; label_P: how alike they should be.
at::Tensor cosine_losses(const at::Tensor& cosine_P, const at::Tensor& label_P);

constexpr double kContrastMargin = 0.5;  // unlike pairs at least so far apart, in 1 - cosine
at::Tensor contrastive_losses(const at::Tensor& cosine_P, const at::Tensor& label_P);

// Only of unlike pairs that are nearer than the farthest like one, and of like pairs that are farther apart than the
// nearest unlike one; 0 for the others.
at::Tensor online_contrastive_losses(const at::Tensor& cosine_P, const at::Tensor& label_P);

// The documents of query q are those from first[q] up to first[q + 1]; the one at first[q] is the right one.
struct VectorSet {
  at::Tensor query_QD, document_ND;
  std::vector<int64_t> first;
};

// Of each query, [Q]. found_Q: whether the right document is likest, f32, detached.
struct InfonceLosses {
  at::Tensor loss_Q, found_Q;
};
InfonceLosses infonce_losses(const VectorSet& set, const InfonceSettings& settings);

}  // namespace apus
