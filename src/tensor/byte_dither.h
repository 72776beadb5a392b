// SPDX-License-Identifier: Apache-2.0
// Thresholds as in tensor/dither.h, but of 8 bits, for values that become one byte. They are the upper halves of a
// sequence of 16-bit numbers, of which a vector unit adds twice as many at a time as of 32-bit ones.
#pragma once

#include "tensor/dither.h"

namespace apus {

constexpr uint32_t kByteDitherStride = 0x9e37;

// Where the sequence stands after `elements`. start: what dither_start() or advanced() gave for this tensor and step.
inline uint16_t byte_dither_start(int64_t start, int64_t elements) {
  return static_cast<uint16_t>((static_cast<uint32_t>(start) >> 16) +
                               static_cast<uint32_t>(elements) * kByteDitherStride);
}
// Thresholds in [0, 256) of elements [begin, begin + count); int64.
at::Tensor byte_dither(int64_t begin, int64_t count, int64_t start, at::Device device);

}  // namespace apus
