// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/mxfp4.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <array>
#include <cmath>
#include <limits>

namespace apus {

namespace {
constexpr int64_t kBlock = 32;  // numbers that share a scale

// A sign, two bits of exponent, one of mantissa.
constexpr std::array<float, 16> kNumbers = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0F, -0.5, -1, -1.5, -2, -3, -4, -6};

// A power of two; 255 says that the block holds no numbers.
float scale_of(uint8_t code) {
  return code == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, static_cast<int>(code) - 127);
}

template <class T>
void take_out(const uint8_t* blocks, const uint8_t* scales, int64_t count, T* out) {
  at::parallel_for(0, count, 1 << 12, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      std::array<T, 16> scaled;
      for (size_t i = 0; i < scaled.size(); ++i) scaled[i] = static_cast<T>(kNumbers[i] * scale_of(scales[b]));
      for (int64_t j = 0; j < kBlock / 2; ++j) {
        const uint8_t two = blocks[b * kBlock / 2 + j];
        out[b * kBlock + 2 * j] = scaled[two & 15], out[b * kBlock + 2 * j + 1] = scaled[two >> 4];
      }
    }
  });
}
}  // namespace

std::vector<DiskShape> mxfp4_shapes(const std::string& name, const std::vector<int64_t>& stack) {
  const int64_t blocks = (stack[2] + kBlock - 1) / kBlock;
  return {{name + kMxfp4Blocks, {stack[0], stack[1], blocks, kBlock / 2}},
          {name + kMxfp4Scales, {stack[0], stack[1], blocks}}};
}

at::Tensor mxfp4_values(const at::Tensor& blocks, const at::Tensor& scales, at::ScalarType dtype) {
  const bool half = dtype == at::kBFloat16;
  const at::Tensor out = at::empty({scales.size(0), scales.size(1), scales.size(2) * kBlock},
                                   at::TensorOptions().dtype(half ? at::kBFloat16 : at::kFloat));
  const auto *numbers = blocks.data_ptr<uint8_t>(), *powers = scales.data_ptr<uint8_t>();
  if (half)
    take_out(numbers, powers, scales.numel(), out.data_ptr<at::BFloat16>());
  else
    take_out(numbers, powers, scales.numel(), out.data_ptr<float>());
  return out.to(dtype);
}

}  // namespace apus
