// SPDX-License-Identifier: Apache-2.0
// A layer whose activations are not kept: the backward pass runs it again from its input, and from what it did keep
// (nn/kept.h). Randomness inside comes from Step::dropout_seed, so the second run is the first one.
#pragma once

#include <optional>

#include "models/model.h"
#include "nn/kept.h"

namespace apus {

// model.layer(i, x_TD, s), keeping only x_TD and these parts. Gradients of the layer's parameters are added to them
// directly. `s` and the model must outlive the backward pass.
at::Tensor recomputed_layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s,
                            const std::optional<KeptParts>& parts);

}  // namespace apus
