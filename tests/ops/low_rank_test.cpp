// SPDX-License-Identifier: Apache-2.0
// LoRA's thin products: their formula in f64, no gradient that was not asked for, rows that do not see each other.
#include "ops/low_rank.h"

#include "tests/ops/devices.h"

namespace apus::ops::test {
namespace {

struct Shape {
  int64_t tokens, in, out, rank;
};
const std::vector<Shape> shapes{{0, 32, 32, 4}, {1, 8, 5, 1}, {7, 40, 33, 3}, {70, 64, 600, 8}, {131, 513, 70, 17}};
constexpr double kScale = 0.75;

class LowRank : public OpTest {
 protected:
  struct Given {
    at::Tensor y, x, a, b, dy;
  };
  static Given given(const Shape& s, at::ScalarType type) {
    return {placed(normal({s.tokens, s.out}, 1), type), placed(normal({s.tokens, s.in}, 2), type),
            placed(normal({s.rank, s.in}, 3) / std::sqrt(static_cast<double>(s.in)), type),
            placed(normal({s.out, s.rank}, 4), type), placed(normal({s.tokens, s.out}, 5), type)};
  }
  static void near(const at::Tensor& got, const at::Tensor& expected, const char* what) {
    expect_close(got, expected, 2 * tolerance(GetParam()), what);
  }
};

TEST_P(LowRank, AddsItsProduct) {
  for (const Shape& s : shapes) {
    const Given g = given(s, GetParam());
    at::Tensor y = g.y.clone();
    const at::Tensor h = add_low_rank(y, g.x, g.a, g.b, kScale);
    EXPECT_EQ(h.scalar_type(), GetParam());
    near(h, exact(g.x).mm(exact(g.a).t()), "h");
    near(y, exact(g.y) + exact(h).mm(exact(g.b).t()) * kScale, "y");
  }
}

TEST_P(LowRank, AddsToColumnsOfAWiderResult) {
  const Given g = given({9, 16, 24, 8}, GetParam());
  const at::Tensor all = placed(normal({9, 40}, 6), GetParam()), before = all.clone();
  at::Tensor y = all.narrow(1, 8, 24), alone = y.clone();
  add_low_rank(y, g.x, g.a, g.b, kScale);
  add_low_rank(alone, g.x, g.a, g.b, kScale);
  near(y, exact(alone), "y");
  EXPECT_TRUE(all.narrow(1, 0, 8).equal(before.narrow(1, 0, 8)));
  EXPECT_TRUE(all.narrow(1, 32, 8).equal(before.narrow(1, 32, 8)));
}

TEST_P(LowRank, GradientsAreTheFormulas) {
  for (const Shape& s : shapes) {
    const Given g = given(s, GetParam());
    const at::Tensor h = placed(exact(g.x).mm(exact(g.a).t()), GetParam());
    const auto [dx, da, db] = low_rank_backward(g.dy, g.x, h, g.a, g.b, kScale, {true, true, true});
    const at::Tensor dh = exact(g.dy).mm(exact(g.b)) * kScale;
    near(dx, dh.mm(exact(g.a)), "dx");
    near(da, dh.t().mm(exact(g.x)), "da");
    near(db, exact(g.dy).t().mm(exact(h)) * kScale, "db");
    const auto [no_dx, only_da, no_db] = low_rank_backward(g.dy, g.x, h, g.a, g.b, kScale, {false, true, false});
    EXPECT_FALSE(no_dx.defined());
    EXPECT_FALSE(no_db.defined());
    EXPECT_TRUE(only_da.equal(da));
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, LowRank, ::testing::ValuesIn(dtypes()), dtype_of);

TEST(LowRankOnce, RowsDoNotSeeEachOther) {
  if (device().name() != "cpu") GTEST_SKIP() << "only the processor's kernels promise it";
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    const at::Tensor x = placed(normal({67, 96}, 1), type), a = normal({8, 96}, 2).to(at::kFloat),
                     b = normal({80, 8}, 3).to(at::kFloat);
    at::Tensor y = placed(normal({67, 80}, 4), type);
    const at::Tensor before = y.clone(), h = add_low_rank(y, x, a, b, 2);
    for (const int64_t row : {0, 13, 66}) {
      at::Tensor one = before.narrow(0, row, 1).clone();
      EXPECT_TRUE(add_low_rank(one, x.narrow(0, row, 1), a, b, 2).equal(h.narrow(0, row, 1)));
      EXPECT_TRUE(one.equal(y.narrow(0, row, 1)));
    }
  }
}

}  // namespace
}  // namespace apus::ops::test
