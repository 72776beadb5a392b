// SPDX-License-Identifier: Apache-2.0
// The loss of the head that guesses tokens ahead (MTP, --mtp_num_layers): behind each token it reads the one that
// follows, and learns the one after that.
#pragma once

#include "models/model.h"
#include "ops/ops.h"
#include "train/batch.h"

namespace apus {

// Where the token behind each one stands, int64 [T]; of the last of a sequence its own place.
at::Tensor places_behind(const Step& s);

// The cross-entropy in sum, the labels that it is over, and which of them were right. `embedded_TD` and `hidden_TD`: of
// the model's own pass over the batch, whose step it was; the former as the layers were given it.
struct AheadLoss {
  at::Tensor sum, nll_sum, count, correct;
};
AheadLoss loss_ahead(const Model& model, const Batch& batch, const at::Tensor& embedded_TD,
                     const at::Tensor& hidden_TD);

}  // namespace apus
