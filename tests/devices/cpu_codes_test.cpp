// SPDX-License-Identifier: Apache-2.0
// Linear layers whose weights are held as codes, on each instruction set, against the same weights made plain.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>

#include <limits>
#include <memory>
#include <string_view>

#include "ops/ops.h"
#include "ops/quantised.h"
#include "tests/devices/coded_weights.h"
#include "tests/devices/cpu_kernels.h"

namespace apus::cpu {
namespace {

class CpuCodes : public CpuKernels {};

TEST_P(CpuCodes, AreTheNumbersOfTheirFormat) {
  for (const quant::Shape shape : {quant::Shape{96, 608}, {32, 1184}})
    for (const auto& [name, exact, matrix] : coded_weights(shape)) {
      SCOPED_TRACE(name);
      const at::Tensor held = ops::quantised_tensor(matrix, at::kBFloat16, at::kCPU);
      ASSERT_FALSE(ops::matrix_of(held)) << "it is not kept as codes";
      const at::Tensor want = ops::dequantised(*matrix, 0, shape.rows, at::kFloat), got = ops::plain(held);
      EXPECT_EQ(got.sizes(), want.sizes());
      // One rounding to bf16, and of scales and zeros one to f16.
      const at::Tensor miss = (got.to(at::kFloat) - want).abs() - want.abs() * (exact ? 0.0040 : 0.0045);
      EXPECT_LE(miss.max().item<float>(), exact ? 1e-9 : 5e-4 * want.abs().max().item<float>());
      const float other = got.ne(want.to(at::kBFloat16)).to(at::kFloat).mean().item<float>();
      EXPECT_LE(other, exact ? 1e-3 : 1.0);
      EXPECT_TRUE(at::equal(ops::plain_rows(held, 7, 20), got.narrow(0, 7, 20)));
      EXPECT_LT(ops::held_bytes(held), shape.count() * 3 / 2 + 4096);
    }
}

TEST_P(CpuCodes, ProductsAreThoseOfThePlainWeightAlsoRowByRow) {
  const quant::Shape shape{96, 608};
  const at::Tensor x = at::randn({131, shape.columns}).to(at::kBFloat16), b = at::randn({96}).to(at::kBFloat16);
  for (const auto& [name, exact, matrix] : coded_weights(shape)) {
    SCOPED_TRACE(name);
    const at::Tensor held = ops::quantised_tensor(matrix, at::kBFloat16, at::kCPU), plain = ops::plain(held);
    const at::Tensor all = ops::linear(x, held, b);
    EXPECT_LT(error(all, at::matmul(x.to(at::kDouble), plain.to(at::kDouble).t()) + b.to(at::kDouble)), 6e-3);
    for (const int64_t rows : {1, 2, 16, 17, 33, 96}) {
      const at::Tensor some = ops::linear(x.narrow(0, 131 - rows, rows), held, b);
      EXPECT_TRUE(at::equal(some, all.narrow(0, 131 - rows, rows))) << rows;
    }
  }
}

// As products of eight bits see x: whole numbers times the largest of 32 columns by 127.
at::Tensor rounded(const at::Tensor& x) {
  const at::Tensor blocks = x.to(at::kDouble).view({x.size(0), -1, 32});
  const at::Tensor scale = blocks.abs().amax(2, /*keepdim=*/true) / 127;
  return (blocks / scale).round().mul(scale).view(x.sizes());
}

TEST_P(CpuCodes, ProductsOfEightBitsAreExactButForX) {
  for (const quant::Shape shape : {quant::Shape{96, 608}, {96, 1184}}) {
    const at::Tensor x = at::randn({131, shape.columns}).to(at::kBFloat16),
                     b = at::randn({shape.rows}).to(at::kBFloat16);
    for (const auto& [name, exact, matrix] : coded_weights(shape)) {
      SCOPED_TRACE(name);
      const at::Tensor held = ops::quantised_tensor(matrix, at::kBFloat16, at::kCPU, ops::Products::Int8);
      const at::Tensor weight = ops::dequantised(*matrix, 0, shape.rows, at::kFloat).to(at::kDouble).t();
      const at::Tensor all = ops::linear(x, held, b);
      const bool fp8 = std::string_view(name).starts_with("fp8"), book = name[1] == 'f' || name[1] == 'p';
      const at::Tensor seen = fp8 ? x.to(at::kDouble) : rounded(x);
      // Sums rounded to bf16; of the books of nf4 and fp4, numbers rounded to eight bits as well.
      EXPECT_LT(error(all, at::matmul(seen, weight) + b.to(at::kDouble)), book ? 9e-3 : 6e-3);
      EXPECT_LT(error(all, at::matmul(x.to(at::kDouble), weight) + b.to(at::kDouble)), 1.3e-2);
      for (const int64_t rows : {1, 2, 3, 7, 17, 96}) {
        const at::Tensor some = ops::linear(x.narrow(0, 131 - rows, rows), held, b);
        EXPECT_TRUE(at::equal(some, all.narrow(0, 131 - rows, rows))) << rows;
      }
      EXPECT_TRUE(at::equal(ops::plain(held), ops::plain(ops::quantised_tensor(matrix, at::kBFloat16, at::kCPU))));
    }
  }
}

// Codes of groups of 16, signed, as the widest numbers that there are: no sum may overflow.
TEST_P(CpuCodes, TheLargestNumbersFit) {
  const quant::Shape shape{32, 640};
  const at::Tensor wide = at::full({32, 640}, -1.0f), x = at::full({3, 640}, -2.0f).to(at::kBFloat16);
  const std::span<const float> w(wide.data_ptr<float>(), static_cast<size_t>(wide.numel()));
  const std::shared_ptr<const quant::Matrix> all[] = {
      quant::open_bnb_int8({"layer", quant::quantise_bnb_int8(w, shape)}, shape),
      quant::open_bnb4({"layer", quant::quantise_bnb4(w, shape, {.block = 32})}, shape)};
  for (const auto& matrix : all) {
    const at::Tensor held = ops::quantised_tensor(matrix, at::kBFloat16, at::kCPU, ops::Products::Int8);
    const at::Tensor y = ops::linear(x, held, {});
    EXPECT_LT((y.to(at::kFloat) - 1280).abs().max().item<float>(), 8) << y[0][0];
  }
}

TEST_P(CpuCodes, ProductsOfEightBitsHideNoNaN) {
  const quant::Shape shape{96, 608};
  at::Tensor x = at::randn({4, shape.columns}).to(at::kBFloat16);
  x[1][77] = std::numeric_limits<float>::quiet_NaN(), x[2][300] = std::numeric_limits<float>::infinity();
  for (const auto& [name, exact, matrix] : coded_weights(shape)) {
    SCOPED_TRACE(name);
    const at::Tensor y =
        ops::linear(x, ops::quantised_tensor(matrix, at::kBFloat16, at::kCPU, ops::Products::Int8), {});
    EXPECT_TRUE(at::isfinite(y[0]).all().item<bool>() && at::isfinite(y[3]).all().item<bool>());
    EXPECT_TRUE(at::isnan(y[1]).all().item<bool>());
    EXPECT_FALSE(at::isfinite(y[2]).any().item<bool>());
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, CpuCodes, ::testing::ValuesIn(isas()));

}  // namespace
}  // namespace apus::cpu
