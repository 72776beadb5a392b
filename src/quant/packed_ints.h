// SPDX-License-Identifier: Apache-2.0
// compressed-tensors' pack-quantized: integers of 4 or 8 bits along the inputs, offset so that none is negative.
#pragma once

#include <memory>

#include "quant/matrix.h"
#include "quant/pieces.h"

namespace apus::quant {

std::unique_ptr<Matrix> open_packed_ints(const StoredLayer& layer, Shape shape, int64_t bits);

}  // namespace apus::quant
