// SPDX-License-Identifier: Apache-2.0
// The highest tokens of an update are the same, however it is divided into micro-batches and over ranks.
#include "algos/policy/token_picks.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <thread>

namespace apus {
namespace {

double alone(double x) { return x; }

std::vector<at::Tensor> parts_of(const at::Tensor& all, int64_t size) {
  std::vector<at::Tensor> out;
  for (int64_t i = 0; i < all.numel(); i += size) out.push_back(all.narrow(0, i, std::min(size, all.numel() - i)));
  return out;
}

using Pick = TokenPicks (*)(const std::vector<at::Tensor>&, double, const RankSum&);

// Half of the values on each of two ranks.
at::Tensor over_two(const at::Tensor& all, Pick pick, double share) {
  std::barrier<> together(2);
  double given[2] = {0, 0};
  at::Tensor got[2];
  const auto rank = [&](int r) {
    const RankSum sum = [&](double x) {
      given[r] = x;
      together.arrive_and_wait();
      const double both = given[0] + given[1];
      together.arrive_and_wait();
      return both;
    };
    const int64_t half = all.numel() / 3;  // one has more than the other
    got[r] =
        at::cat(pick(parts_of(r ? all.narrow(0, half, all.numel() - half) : all.narrow(0, 0, half), 5), share, sum));
  };
  std::thread other([&] { rank(1); });
  rank(0);
  other.join();
  return at::cat({got[0], got[1]});
}

TEST(TokenPicks, DoNotDependOnTheDivision) {
  at::Tensor all = at::randn({101}, at::kDouble);
  all[7] = all[50], all[3] = -INFINITY;
  for (const Pick pick : {Pick(highest_tokens), Pick(most_uncertain)})
    for (const double share : {1e-4, 0.1, 0.5, 1.0}) {
      const at::Tensor whole = pick({all}, share, alone)[0];
      for (const int64_t size : {1, 4, 8}) EXPECT_TRUE(at::cat(pick(parts_of(all, size), share, alone)).equal(whole));
      EXPECT_TRUE(over_two(all, pick, share).equal(whole)) << share;
    }
}

TEST(TokenPicks, AreTheHighestThatMayBe) {
  const at::Tensor values = at::tensor({0.5, -INFINITY, 0.75, -2.0, 0.75, 0.0}, at::kDouble);
  const auto picked = [&](const at::Tensor& of, double share) {
    const at::Tensor got = highest_tokens({of}, share, alone)[0];
    std::vector<int64_t> out;
    for (int64_t i = 0; i < got.numel(); ++i)
      if (got[i].item<bool>()) out.push_back(i);
    return out;
  };
  using Places = std::vector<int64_t>;
  EXPECT_EQ(picked(values, 1e-3), (Places{2, 4})) << "equal ones together";
  EXPECT_EQ(picked(values, 0.5), (Places{0, 2, 4}));
  EXPECT_EQ(picked(values, 1), (Places{0, 2, 3, 4, 5})) << "what is not finite may not be picked";
  EXPECT_EQ(picked(at::ones({4}), 0.5), Places()) << "nothing stands out";
  EXPECT_EQ(picked(at::tensor({-INFINITY, 2.0, -INFINITY}, at::kDouble), 0.9), (Places{1}));
  EXPECT_EQ(picked(at::ones({3}) * -INFINITY, 0.9), Places());
  EXPECT_EQ(picked(at::ones({0}), 0.9), Places());
}

TEST(TokenPicks, ByEntropyAreThoseAtTheQuantileOrAbove) {
  const at::Tensor entropy = at::tensor({0.1, 0.9, 0.5, 0.3, 0.7}, at::kDouble);
  EXPECT_TRUE(most_uncertain({entropy}, 0.4, alone)[0].equal(entropy.ge(0.6)));
  EXPECT_EQ(most_uncertain({entropy}, 1, alone)[0].sum().item<int64_t>(), 5);
}

TEST(TokenPicks, MeansAreOfAllTokens) {
  EXPECT_DOUBLE_EQ(mean_of_update({at::tensor({1.0, 2.0}, at::kDouble), at::tensor({6.0}, at::kDouble)}, alone), 3);
  EXPECT_DOUBLE_EQ(mean_of_update({}, alone), 0);
}

}  // namespace
}  // namespace apus
