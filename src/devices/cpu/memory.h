// SPDX-License-Identifier: Apache-2.0
// Memory on huge pages: a fresh 4 KB page costs more to touch than the arithmetic that fills it.
#pragma once

#include <ATen/core/Tensor.h>

namespace apus::cpu {

// An uninitialised one-dimensional tensor that begins on a huge page when it is large; freed memory goes back to the system.
at::Tensor empty_huge(int64_t count, at::ScalarType dtype);

}  // namespace apus::cpu
