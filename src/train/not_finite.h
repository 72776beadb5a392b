// SPDX-License-Identifier: Apache-2.0
// Where numbers stopped being finite.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "nn/module.h"

namespace apus {

bool all_finite(const at::Tensor& t);

// "the weight NAME holds values that are not finite", of the first one; empty: all of this rank's are finite.
std::string weight_not_finite(Module& model);

}  // namespace apus
