// SPDX-License-Identifier: Apache-2.0
// LoRA-GA's first factors, of a gradient whose singular vectors are known: those of a diagonal matrix. Their signs are
// anybody's choice.
#include "checkpoint/gradient_init.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/diag.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tensor/noise.h"
#include "tests/refusal.h"

namespace apus {
namespace {

// Where each vector of length `length` stands.
std::vector<int64_t> places(const at::Tensor& vectors, double length) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < vectors.size(0); ++i) {
    const at::Tensor row = vectors[i].abs();
    const auto at = row.argmax().item<int64_t>();
    EXPECT_NEAR(row[at].item<double>(), length, 1e-5);
    EXPECT_NEAR(row.sum().item<double>(), length, 1e-4);
    all.push_back(at);
  }
  return all;
}

TEST(GradientInit, AreSingularVectors) {
  const at::Tensor gradient = at::diag(at::tensor(std::vector<float>{5, 4, 3, 2, 1})), weight = at::eye(5) * 2;
  const double stable = std::pow(5, 0.25) / 4;
  const auto made = [&](const char* direction, const char* scale) {
    return factors_of_gradient(gradient, weight, 2, 0.5, {.direction = direction, .scale = scale}, 1);
  };
  using Places = std::vector<int64_t>;
  EXPECT_EQ(places(made("ArB2r", "stable").a, stable), (Places{0, 1}));
  EXPECT_EQ(places(made("ArB2r", "stable").b.t(), stable), (Places{2, 3}));
  EXPECT_EQ(places(made("A2rBr", "unit").a, 1), (Places{2, 3}));
  EXPECT_EQ(places(made("A2rBr", "unit").b.t(), 1), (Places{0, 1}));
  EXPECT_EQ(places(made("ArBr", "gd").a, 2), (Places{1, 3}));
  EXPECT_EQ(places(made("ArBr", "gd").b.t(), 2), (Places{0, 2}));
  // The weight's singular values are 2, divided by LoRA's scale 4.
  EXPECT_EQ(places(made("ArB2r", "weightS").a, 2), (Places{0, 1}));
  test::expect_says(test::refusal(Fault::Usage, [&] { factors_of_gradient(gradient, weight, 3, 1, {}, 1); }),
                    "twice the rank 3 exceeds");
}

// Large ones by iteration from a random start: what is found spans what was put there.
TEST(GradientInit, OfLargeMatrices) {
  at::Tensor gradient = normal_noise({600, 550}, 0, 1e-3, 4);
  for (int64_t i = 0; i < 4; ++i) gradient[i][i] += 100 - 10.0 * static_cast<double>(i);
  const LoraFactors f = factors_of_gradient(gradient, at::zeros({600, 550}), 2, 1, {.scale = "unit"}, 1);
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(f.a[i][i].abs().item<double>(), 1, 1e-3);
    EXPECT_NEAR(f.b[2 + i][i].abs().item<double>(), 1, 1e-3);
  }
}

}  // namespace
}  // namespace apus
