// SPDX-License-Identifier: Apache-2.0
// rms_norm and add_rms_norm.
#include <ATen/ops/rsqrt.h>

#include "tests/ops/devices.h"

namespace apus::ops::test {
namespace {

constexpr double eps = 1e-5;

at::Tensor formula(const at::Tensor& x, const at::Tensor& weight) {
  return x * at::rsqrt(x.pow(2).mean(-1, true) + eps) * weight;
}

const std::vector<std::vector<int64_t>> shapes{{0, 16}, {1, 6}, {1, 24}, {5, 96}, {3, 4, 32}};

class Norms : public OpTest {};

TEST_P(Norms, RmsNormIsTheFormula) {
  for (const auto& shape : shapes)
    compare([](const Tensors& t) { return Tensors{rms_norm(t[0], t[1], eps)}; },
            [](const Tensors& t) { return Tensors{formula(t[0], t[1])}; },
            {normal(shape, 1), normal({shape.back()}, 2)}, GetParam());
}

TEST_P(Norms, AddRmsNormIsTheFormulaAndGivesTheSum) {
  for (const auto& shape : shapes)
    compare(
        [](const Tensors& t) {
          const auto [sum, y] = add_rms_norm(t[0], t[1], t[2], eps);
          return Tensors{sum, y};
        },
        [&](const Tensors& t) {
          // y is computed from the sum as it is stored; the gradient passes the rounding unchanged.
          const at::Tensor sum = t[0] + t[1], stored = sum + (rounded(sum.detach(), GetParam()) - sum.detach());
          return Tensors{sum, formula(stored, t[2])};
        },
        {normal(shape, 1), normal(shape, 2), normal({shape.back()}, 3)}, GetParam());
}

TEST_P(Norms, OneResultAloneHasTheRightGradient) {
  for (const int which : {0, 1})
    compare(
        [&](const Tensors& t) {
          const auto [sum, y] = add_rms_norm(t[0], t[1], t[2], eps);
          return Tensors{which == 0 ? sum : y};
        },
        [&](const Tensors& t) {
          const at::Tensor sum = t[0] + t[1], stored = sum + (rounded(sum.detach(), GetParam()) - sum.detach());
          return Tensors{which == 0 ? sum : formula(stored, t[2])};
        },
        {normal({4, 32}, 1), normal({4, 32}, 2), normal({32}, 3)}, GetParam());
}

TEST_P(Norms, SlicesOfAWiderTensorAreTakenAsTheyAre) {
  const at::Tensor wide = placed(normal({5, 3, 32}, 1), GetParam()), weight = placed(normal({32}, 2), GetParam());
  const at::Tensor slice = wide.narrow(1, 1, 1);
  EXPECT_EQ(error(rms_norm(slice, weight, eps), rms_norm(slice.contiguous(), weight, eps)), 0);
}

INSTANTIATE_TEST_SUITE_P(Ops, Norms, ::testing::ValuesIn(dtypes()), dtype_of);

TEST(NormsOnce, TheNormalisedValueIsRoundedBeforeTheWeight) {
  if (!device().kind->supports(at::kBFloat16)) GTEST_SKIP() << device().name() << " has no bf16";
  const at::Tensor x = normal({7, 64}, 1).to(at::kBFloat16), weight = normal({64}, 2).to(at::kBFloat16);
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor expected = (wide * at::rsqrt(wide.pow(2).mean(-1, true) + eps)).to(at::kBFloat16) * weight;
  const at::Tensor actual = rms_norm(x.to(device().device), weight.to(device().device), eps).to(at::kCPU);
  // The statistics may be summed in another order: one bf16 step in a rare element, not everywhere.
  if (device().device.is_cpu()) {  // others round once
    EXPECT_LE((actual != expected).sum().item<int64_t>(), 3);
  }
  EXPECT_LE(error(actual, expected), 1.0 / 128);
}

TEST(NormsOnce, GradientsAreTheDifferences) {
  compare_with_differences([](const Tensors& t) { return Tensors{rms_norm(t[0], t[1], eps)}; },
                           {normal({3, 8}, 1), normal({8}, 2)});
  compare_with_differences(
      [](const Tensors& t) {
        const auto [sum, y] = add_rms_norm(t[0], t[1], t[2], eps);
        return Tensors{sum, y};
      },
      {normal({3, 8}, 1), normal({3, 8}, 2), normal({8}, 3)});
}

TEST(NormsOnce, AFrozenWeightGetsNoGradient) {
  const at::Tensor x = placed(normal({3, 8}, 1), at::kFloat).requires_grad_(),
                   weight = placed(normal({8}, 2), at::kFloat);
  rms_norm(x, weight, eps).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
}

TEST(NormsOnce, ShapesWithoutMemory) {
  const at::Tensor x = on_meta(normal({3, 8}, 1).to(at::kBFloat16)), weight = on_meta(normal({8}, 2).to(at::kBFloat16));
  expect_shape(rms_norm(x, weight, eps), x);
  const auto [sum, y] = add_rms_norm(x, x, weight, eps);
  expect_shape(sum, x);
  expect_shape(y, x);
}

}  // namespace
}  // namespace apus::ops::test
