// SPDX-License-Identifier: Apache-2.0
// Thresholds as in tensor/dither.h, of eight bits, for codes of a byte: the upper halves of a sequence of 16 bits, of
// which vector units add twice as many at a time as of 32.
#pragma once

#include "tensor/dither.h"

namespace apus {

constexpr uint32_t kByteDitherStride = 0x9e37;

// Where the sequence is after `elements`; start: of the tensor and step, as dither_start() gives it or later.
inline uint16_t byte_dither_start(int64_t start, int64_t elements) {
  return static_cast<uint16_t>((static_cast<uint32_t>(start) >> 16) +
                               static_cast<uint32_t>(elements) * kByteDitherStride);
}
// Thresholds in [0, 256) of elements [begin, begin + count); int64.
at::Tensor byte_dither(int64_t begin, int64_t count, int64_t start, at::Device device);

}  // namespace apus
