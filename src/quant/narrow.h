// SPDX-License-Identifier: Apache-2.0
// Many numbers at a time.
#pragma once

#include <cstdint>

#include "tensor/stored_tensor.h"

namespace apus::quant {

void to_bf16(const float* from, int64_t count, uint16_t* to);
void to_f16(const float* from, int64_t count, uint16_t* to);
// All of a tensor of F32, BF16 or F16.
void numbers_of(const StoredTensor& tensor, float* to);

}  // namespace apus::quant
