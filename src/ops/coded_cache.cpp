// SPDX-License-Identifier: Apache-2.0
#include "ops/coded_cache.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/where.h>

#include <algorithm>

#include "base/error.h"
#include "ops/fp8_linear.h"
#include "ops/ops.h"
#include "quant/numbers.h"

namespace apus::ops {

namespace {

constexpr double kMostWhole = 127;
// A number of E4M3 from 2^-6 on has in its lower seven bits what stands in f32 from bit 20 on, and another exponent's
// zero; below it counts steps of 2^-9.
constexpr int64_t kFractionStep = int64_t{1} << 20, kZeroExponent = 120 << 3;
constexpr double kLeastNormal = 1.0 / 64, kSteps = 512;

at::Tensor e4m3_codes(const at::Tensor& wide) {
  const at::Tensor number = rounded_to_fp8(wide, Fp8Type::E4m3).to(at::kFloat), size = number.abs();
  const at::Tensor normal = size.view(at::kInt).div(kFractionStep, "floor").to(at::kInt).sub(kZeroExponent),
                   small = (size * kSteps).to(at::kInt);
  const at::Tensor code = at::where(size.ge(kLeastNormal), normal, small);
  return (code + number.lt(0).to(at::kInt) * 128).to(at::kByte);
}

at::Tensor e4m3_numbers(const at::Tensor& codes) {
  const at::Tensor all = codes.to(at::kInt), below = all.ge(128), code = all - below.to(at::kInt) * 128;
  const at::Tensor normal = ((code + kZeroExponent) * kFractionStep).to(at::kInt).view(at::kFloat),
                   small = code.to(at::kFloat) / kSteps;
  const at::Tensor size = at::where(code.ge(8), normal, small);
  return at::where(below, -size, size);
}

}  // namespace

at::Tensor coded_heads(const at::Tensor& x_TKH, at::ScalarType type) {
  const bool whole = type == at::kChar;
  const double most = whole ? kMostWhole : quant::kMostE4m3;
  const at::Tensor wide = x_TKH.to(at::kFloat);
  const at::Tensor scale = wide.abs().amax(-1, /*keepdim=*/true) / most;
  // A row of zeros stays one.
  const at::Tensor number = (wide * at::where(scale.gt(0), 1 / scale, scale)).clamp(-most, most);
  const at::Tensor codes = whole ? number.round().to(at::kChar).view(at::kByte) : e4m3_codes(number);
  return at::cat({codes, scale.contiguous().view(at::kByte)}, -1).view(type);
}

int64_t head_size(const at::Tensor& cache) {
  return std::min(cache.size(3), cache.stride(2) - (is_coded(cache) ? kCacheScale : 0));
}

at::Tensor plain_blocks(const at::Tensor& cache, const at::Tensor& block_n, at::ScalarType type) {
  std::vector<int64_t> sizes = cache.sizes().vec();
  const int64_t row = sizes.back() = cache.stride(2);
  const at::Tensor rows = cache.as_strided(sizes, cache.strides()).index_select(0, block_n);
  const at::Tensor codes = rows.narrow(3, 0, head_size(cache)),
                   scale = rows.narrow(3, row - kCacheScale, kCacheScale).contiguous().view(at::kFloat);
  const at::Tensor numbers = cache.scalar_type() == at::kChar ? codes.to(at::kFloat) : e4m3_numbers(codes);
  return (numbers * scale).to(type);
}

}  // namespace apus::ops
