// SPDX-License-Identifier: Apache-2.0
// Losses over a vocabulary that ranks share out: each multiplies by its own rows of the head alone, and what they tell
// each other is a few numbers for each token, whatever the size of the vocabulary.
#pragma once

#include "ops/ops.h"
#include "ops/word_share.h"

namespace apus::ops {

// As head_loss and head_logprob, of factors whose weights are this rank's rows. The results are the same on all ranks.
// Gradients are those of the sum of all ranks' results, as collectives' are (dist/collective.h).
HeadLoss shared_head_loss(const HeadFactors& factors, const WordShare& share, const at::Tensor& label_T,
                          const at::Tensor& weight_T, const HeadLossOptions& options);
HeadLogprob shared_head_logprob(const HeadFactors& factors, const WordShare& share, const at::Tensor& label_T,
                                double temperature, bool entropy);

}  // namespace apus::ops
