// SPDX-License-Identifier: Apache-2.0
#include "tensor/dither.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/error.h"

namespace apus {
namespace {

constexpr int64_t kMask = 0xffffffff;

// i * stride for one chunk, made once per device.
at::Tensor spread(at::Device device) {
  static std::mutex lock;
  static std::map<std::string, at::Tensor> made;
  const std::lock_guard guard(lock);
  at::Tensor& base = made[device.str()];
  if (!base.defined()) base = (at::arange(kDitherChunk, at::kLong) * static_cast<int64_t>(kDitherStride)).to(device);
  return base;
}

}  // namespace

int64_t dither_start(int64_t stream, int64_t step) {
  return static_cast<uint32_t>(step) * 0xc13fa9a9u + static_cast<uint32_t>(stream) * 0x91e10da5u;
}

at::Tensor dither(int64_t begin, int64_t count, int64_t start, at::Device device) {
  return (spread(device).narrow(0, 0, count) + advanced(start, begin)).bitwise_and_(kMask);
}

void round_stochastic_(at::Tensor& target, const at::Tensor& source, int64_t start) {
  require(target.scalar_type() == at::kBFloat16 && target.is_contiguous(), Fault::Bug,
          "stochastic rounding is for contiguous bf16 parameters");
  const at::Tensor from = source.contiguous().view(-1);
  at::Tensor to = target.view(-1);
  for (int64_t at = 0; at < to.numel(); at += kDitherChunk) {
    const int64_t count = std::min(kDitherChunk, to.numel() - at);
    // A bf16 is the upper half of an f32: add a threshold to the lower half, then cut it off.
    const at::Tensor low = dither(at, count, start, to.device()).bitwise_right_shift(16).to(at::kInt);
    const at::Tensor bits = (from.narrow(0, at, count).view(at::kInt) + low).bitwise_and_(-65536);
    to.narrow(0, at, count).copy_(bits.view(at::kFloat));
  }
}

}  // namespace apus
