// SPDX-License-Identifier: Apache-2.0
// A byte with a sign for each weight and one scale for each row: bitsandbytes' LLM.int8 and compressed-tensors'
// int-quantized. Activations stay as they are.
#pragma once

#include <memory>
#include <span>

#include "quant/matrix.h"
#include "quant/pieces.h"

namespace apus::quant {

std::unique_ptr<Matrix> open_bnb_int8(const StoredLayer& layer, Shape shape);
Pieces quantise_bnb_int8(std::span<const float> weight, Shape shape);

std::unique_ptr<Matrix> open_int_quantised(const StoredLayer& layer, Shape shape);

}  // namespace apus::quant
