// SPDX-License-Identifier: Apache-2.0
// AWQ's storage for its GEMM kernels: four bits, packed along the outputs in an order of their own.
#pragma once

#include <memory>
#include <span>

#include "quant/gptq.h"
#include "quant/matrix.h"
#include "quant/pieces.h"

namespace apus::quant {

// Its tensors have GPTQ's names.
std::unique_ptr<Matrix> open_awq(const StoredLayer& layer, Shape shape, int64_t group);

// Integers as AWQ rounds them: in f16, an operation at a time. group -1: all inputs are one.
Integers round_to_awq(std::span<const float> weight, Shape shape, int64_t group);
Pieces pack_awq(const Integers& integers, Shape shape);

}  // namespace apus::quant
