// SPDX-License-Identifier: Apache-2.0
#include "tensor/byte_dither.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

namespace apus {

at::Tensor byte_dither(int64_t begin, int64_t count, int64_t start, at::Device device) {
  return at::arange(count, at::TensorOptions(at::kLong).device(device))
      .mul_(static_cast<int64_t>(kByteDitherStride))
      .add_(static_cast<int64_t>(byte_dither_start(start, begin)))
      .bitwise_and_(0xffff)
      .bitwise_right_shift_(8);
}

}  // namespace apus
