// SPDX-License-Identifier: Apache-2.0
// A part of a model whose activations are not kept: the backward pass runs it again from its input, and from the
// results that were remembered (nn/memo.h). Randomness inside comes from the step's seed, so the second run is the
// first one.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "nn/memo.h"
#include "nn/step.h"

namespace apus {

using RunPart = std::function<at::Tensor(const at::Tensor& x_TD, const Step& s)>;

// The backward pass adds the gradients of the part's parameters to them directly. What `part` refers to must outlive
// that pass.
at::Tensor run_again(const at::Tensor& x_TD, const Step& s, Memo::Kinds remembered, RunPart part);

}  // namespace apus
