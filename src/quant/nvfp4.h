// SPDX-License-Identifier: Apache-2.0
// NVFP4: E2M1 in groups of 16 inputs with an E4M3 scale each, and one scale for the whole weight.
#pragma once

#include <memory>

#include "quant/matrix.h"
#include "quant/pieces.h"

namespace apus::quant {

std::unique_ptr<Matrix> open_nvfp4(const StoredLayer& layer, Shape shape);

}  // namespace apus::quant
