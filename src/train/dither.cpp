// SPDX-License-Identifier: Apache-2.0
#include "train/dither.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <cmath>
#include <map>
#include <mutex>

#include "base/error.h"

namespace apus {
namespace {

// frac(i * phi), computed in f64 once per device.
at::Tensor spread(at::Device device) {
  static std::mutex lock;
  static std::map<std::string, at::Tensor> made;
  const std::lock_guard guard(lock);
  at::Tensor& base = made[device.str()];
  if (!base.defined())
    base = (at::arange(kDitherChunk, at::kDouble) * 0.6180339887498949).frac().to(at::kFloat).to(device);
  return base;
}

}  // namespace

at::Tensor dither(int64_t count, int64_t stream, int64_t chunk, int64_t step, at::Device device) {
  const double shift = static_cast<double>(step) * 0.7548776662466927 +
                       static_cast<double>(stream) * 0.5698402909980532 +
                       static_cast<double>(chunk) * 0.4142135623730951;
  return (spread(device).narrow(0, 0, count) + (shift - std::floor(shift))).frac_();
}

void round_stochastic_(at::Tensor& target, const at::Tensor& source, int64_t stream, int64_t step) {
  require(target.scalar_type() == at::kBFloat16 && target.is_contiguous(), Fault::Bug,
          "stochastic rounding is for contiguous bf16 parameters");
  const at::Tensor from = source.contiguous().view(-1);
  at::Tensor to = target.view(-1);
  for (int64_t at = 0, chunk = 0; at < to.numel(); at += kDitherChunk, ++chunk) {
    const int64_t count = std::min(kDitherChunk, to.numel() - at);
    // A bf16 is the upper half of an f32: add a threshold to the lower half, then cut it off.
    const at::Tensor low = (dither(count, stream, chunk, step, to.device()) * 65536).to(at::kInt);
    const at::Tensor bits = (from.narrow(0, at, count).view(at::kInt) + low).bitwise_and_(-65536);
    to.narrow(0, at, count).copy_(bits.view(at::kFloat));
  }
}

}  // namespace apus
