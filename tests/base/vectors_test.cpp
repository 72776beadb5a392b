// SPDX-License-Identifier: Apache-2.0
#include "base/vectors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"

namespace apus {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Vectors, ExpIsExact) {
  std::vector<float> x, e;
  for (float t = -86.9f; t <= 0; t += 0.00137f) x.push_back(t);
  x.push_back(0);
  e.resize(x.size());
  vectors::exps(x, 0, 1, e.data());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(e[i] / std::exp(static_cast<double>(x[i])), 1, 2e-7) << x[i];
  EXPECT_EQ(e.back(), 1.0f);
}

TEST(Vectors, ExpAtTheEdges) {
  const std::vector<float> x{5, -kInf, -1e30f, 4, -85};
  std::vector<float> e(x.size());
  vectors::exps(x, 5, 2, e.data());
  EXPECT_EQ(e[0], 1.0f);
  EXPECT_EQ(e[1], 0.0f);
  EXPECT_EQ(e[2], 0.0f);
  EXPECT_NEAR(e[3], std::exp(-2.0), 1e-7);
  EXPECT_EQ(e[4], 0.0f);
}

TEST(Vectors, SumsOfEveryLength) {
  Random random(3);
  std::vector<float> x;
  for (int n = 0; n < 1100; ++n) {
    double sum = 0;
    for (const float v : x) sum += std::exp((static_cast<double>(v) - 4) * 0.7);
    ASSERT_NEAR(vectors::sum_of_exps(x, 4, 0.7f), sum, 3e-7 * sum) << n;
    x.push_back(static_cast<float>(4 - 30 * random.uniform()));
  }
}

TEST(Vectors, LargestOfEveryLengthAndPlace) {
  Random random(4);
  std::vector<float> x;
  EXPECT_EQ(vectors::largest(x), -kInf);
  for (int n = 1; n < 300; ++n) {
    x.push_back(static_cast<float>(random.normal()));
    ASSERT_EQ(vectors::largest(x), *std::max_element(x.begin(), x.end()));
    const float kept = std::exchange(x[random.below(x.size())], std::nanf(""));
    ASSERT_TRUE(std::isnan(vectors::largest(x))) << n;
    *std::find_if(x.begin(), x.end(), [](float v) { return std::isnan(v); }) = kept;
  }
}

TEST(Vectors, NormalValuesAreNormal) {
  constexpr size_t n = 1 << 20;
  std::vector<float> x(n), y(n);
  vectors::normals(77, x);
  vectors::normals(78, y);
  double mean = 0, square = 0, fourth = 0, product = 0, neighbour = 0, halves = 0;
  size_t within = 0, beyond = 0;
  for (size_t i = 0; i < n; ++i) {
    const double v = x[i];
    ASSERT_TRUE(std::isfinite(v));
    mean += v, square += v * v, fourth += v * v * v * v, product += v * y[i];
    neighbour += v * x[(i + 1) % n], halves += v * x[(i + n / 2) % n];
    within += std::abs(v)<1, beyond += std::abs(v)> 3;
  }
  const double deviation = 5 / std::sqrt(static_cast<double>(n));
  EXPECT_NEAR(mean / n, 0, deviation);
  EXPECT_NEAR(square / n, 1, 1.5 * deviation);
  EXPECT_NEAR(fourth / n, 3, 10 * deviation);
  for (const double p : {product, neighbour, halves}) EXPECT_NEAR(p / n, 0, deviation);
  EXPECT_NEAR(static_cast<double>(within) / n, 0.682689, deviation);
  EXPECT_NEAR(static_cast<double>(beyond) / n, 0.0026998, 0.1 * deviation);
}

// Bit for bit: weights made from a seed must be the same on every machine and in every version.
TEST(Vectors, NormalValuesStay) {
  std::vector<float> x(7);
  vectors::normals(1, x);
  const std::vector<float> expected{0x1.3da728p+0f, -0x1.3dc5d4p+0f, 0x1.f7facep-2f, 0x1.8406dcp-1f,
                                    0x1.0a02dcp-1f, -0x1.6e7ee2p-2f, -0x1.0c3accp-2f};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(x[i], expected[i]) << i;
}

}  // namespace
}  // namespace apus
