// SPDX-License-Identifier: Apache-2.0
// ggml's blocks, as a GGUF file holds them.
#pragma once

#include <memory>

#include "gguf/model.h"
#include "quant/matrix.h"

namespace apus::quant {

// Of a slice of a quantised type, whose file stays open.
std::unique_ptr<Matrix> open_ggml(std::shared_ptr<const GgufModel> model, const GgufSlice& slice);

}  // namespace apus::quant
