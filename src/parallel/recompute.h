// SPDX-License-Identifier: Apache-2.0
// A layer whose activations are not kept: the backward pass runs it again from its input. Randomness inside comes from
// Step::dropout_seed, so the second run is the first one.
#pragma once

#include "models/model.h"

namespace apus {

// model.layer(i, x_TD, s), keeping only x_TD. Gradients of the layer's parameters are added to them directly. `s` and
// the model must outlive the backward pass.
at::Tensor recomputed_layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s);

}  // namespace apus
