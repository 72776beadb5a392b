// SPDX-License-Identifier: Apache-2.0
// FP8 E4M3 weights with a scale for the whole weight, for each row, or for each block: what DeepSeek, Qwen3-FP8,
// transformers, fbgemm and compressed-tensors write. Activations stay as they are.
#pragma once

#include <memory>
#include <span>

#include "quant/matrix.h"
#include "quant/pieces.h"

namespace apus::quant {

// {rows, columns} that share a scale, where it is neither one for all nor one a row.
struct Fp8Block {
  int64_t rows = 128, columns = 128;
};

std::unique_ptr<Matrix> open_fp8(const StoredLayer& layer, Shape shape, Fp8Block block);

// weight and weight_scale_inv, as transformers writes them.
Pieces quantise_fp8(std::span<const float> weight, Shape shape, Fp8Block block);
// weight and weight_scale (bf16, one a row), as compressed-tensors' FP8_DYNAMIC.
Pieces quantise_fp8_rows(std::span<const float> weight, Shape shape);

}  // namespace apus::quant
