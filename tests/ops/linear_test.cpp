// SPDX-License-Identifier: Apache-2.0
// linear, packed_linear and embedding.
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include "tests/ops/devices.h"

namespace apus::ops::test {
namespace {

struct Shape {
  int64_t rows, in, out;
};
const std::vector<Shape> shapes{{0, 8, 4}, {1, 1, 1}, {1, 64, 33}, {7, 40, 24}, {65, 32, 48}, {33, 100, 70}};

class Linears : public OpTest {};

TEST_P(Linears, IsTheFormulaWithAndWithoutBias) {
  for (const Shape& s : shapes) {
    const Tensors inputs{normal({s.rows, s.in}, 1), normal({s.out, s.in}, 2), normal({s.out}, 3)};
    compare([](const Tensors& t) { return Tensors{linear(t[0], t[1], t[2])}; },
            [](const Tensors& t) { return Tensors{at::matmul(t[0], t[1].t()) + t[2]}; }, inputs, GetParam());
    compare([](const Tensors& t) { return Tensors{linear(t[0], t[1], {})}; },
            [](const Tensors& t) { return Tensors{at::matmul(t[0], t[1].t())}; }, {inputs[0], inputs[1]}, GetParam());
  }
}

TEST_P(Linears, MoreDimensionsAreRows) {
  compare([](const Tensors& t) { return Tensors{linear(t[0], t[1], t[2])}; },
          [](const Tensors& t) { return Tensors{at::matmul(t[0], t[1].t()) + t[2]}; },
          {normal({2, 3, 16}, 1), normal({8, 16}, 2), normal({8}, 3)}, GetParam());
}

TEST_P(Linears, OnlyWhatIsAskedGetsAGradient) {
  const at::Tensor x = placed(normal({5, 16}, 1), GetParam()), w = placed(normal({8, 16}, 2), GetParam()),
                   b = placed(normal({8}, 3), GetParam());
  for (int asked = 1; asked < 8; ++asked) {
    const at::Tensor x1 = x.clone().requires_grad_(asked & 1), w1 = w.clone().requires_grad_((asked & 2) != 0),
                     b1 = b.clone().requires_grad_((asked & 4) != 0);
    linear(x1, w1, b1).sum().backward();
    EXPECT_EQ(x1.grad().defined(), (asked & 1) != 0);
    EXPECT_EQ(w1.grad().defined(), (asked & 2) != 0);
    EXPECT_EQ(b1.grad().defined(), (asked & 4) != 0);
    if (asked & 1) expect_close(x1.grad(), exact(w).sum(0).expand({5, 16}), tolerance(GetParam()), "dx");
    if (asked & 2) expect_close(w1.grad(), exact(x).sum(0).expand({8, 16}), tolerance(GetParam()), "dw");
  }
}

// Whether or not the device packs, what nn/ does with the answer gives the plain product.
TEST_P(Linears, PackedIsPlain) {
  for (const Shape& s : shapes) {
    const at::Tensor x = placed(normal({s.rows, s.in}, 1), GetParam()),
                     w = placed(normal({s.out, s.in}, 2), GetParam());
    const at::Tensor b = placed(normal({s.out}, 3), GetParam()), packed = pack_linear(w);
    if (!packed.defined()) continue;
    expect_close(packed_linear(x, packed, b, s.out), at::matmul(exact(x), exact(w).t()) + exact(b),
                 tolerance(GetParam()), "with bias");
    const at::Tensor plain = packed_linear(x, packed, {}, s.out);
    expect_close(plain, at::matmul(exact(x), exact(w).t()), tolerance(GetParam()), "without bias");
    for (int64_t row = 0; row < s.rows; ++row)
      EXPECT_LE(error(packed_linear(x.narrow(0, row, 1), packed, {}, s.out), plain.narrow(0, row, 1)),
                device().device.is_cpu() ? 0 : tolerance(GetParam()))
          << "row " << row << " alone";
    EXPECT_THROW(packed_linear(x.clone().requires_grad_(), packed, b, s.out), Error);
  }
}

TEST_P(Linears, EmbeddingIsTheFormula) {
  for (const int64_t tokens : {0, 1, 40}) {
    const at::Tensor id = integers({tokens}, 0, 9, 5);  // ids repeat, and rows 9 and 10 are never used
    compare([&](const Tensors& t) { return Tensors{embedding(id.to(device().device), t[0])}; },
            [&](const Tensors& t) { return Tensors{t[0].index_select(0, id)}; }, {normal({11, 24}, 1)}, GetParam());
  }
}

// A table that is the head too: its gradient is the sum of both uses, though only one tensor holds it.
TEST_P(Linears, ATiedTableCollectsBothGradients) {
  const at::Tensor id = integers({12}, 0, 9, 5);
  compare(
      [&](const Tensors& t) {
        const auto [x, table] = embedding_and_table(id.to(device().device), t[0]);
        return Tensors{linear(x, table, {})};
      },
      [&](const Tensors& t) { return Tensors{at::matmul(t[0].index_select(0, id), t[0].t())}; }, {normal({11, 24}, 1)},
      GetParam());
  compare([&](const Tensors& t) { return Tensors{std::get<0>(embedding_and_table(id.to(device().device), t[0]))}; },
          [&](const Tensors& t) { return Tensors{t[0].index_select(0, id)}; }, {normal({11, 24}, 1)}, GetParam());
}

TEST_P(Linears, EmbeddingTakesInt32AndMoreDimensions) {
  const at::Tensor id = integers({3, 4}, 0, 7, 5).to(device().device), weight = placed(normal({7, 8}, 1), GetParam());
  const at::Tensor y = embedding(id, weight);
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{3, 4, 8}));
  EXPECT_EQ(error(embedding(id.to(at::kInt), weight), y), 0);
}

INSTANTIATE_TEST_SUITE_P(Ops, Linears, ::testing::ValuesIn(dtypes()), dtype_of);

TEST(LinearsOnce, AFrequentTokensGradientIsSummedInFullPrecision) {
  if (!device().kind->supports(at::kBFloat16)) GTEST_SKIP() << device().name() << " has no bf16";
  // 1000 gradients of 1: a bf16 sum would stop at 256.
  const at::Tensor weight = placed(normal({3, 4}, 1), at::kBFloat16).requires_grad_();
  embedding(at::zeros({1000}, at::kLong).to(device().device), weight).sum().backward();
  EXPECT_EQ(exact(weight.grad())[0].min().item<double>(), 1000);
  EXPECT_EQ(exact(weight.grad()).narrow(0, 1, 2).abs().sum().item<double>(), 0);
}

TEST(LinearsOnce, GradientsAreTheDifferences) {
  compare_with_differences([](const Tensors& t) { return Tensors{linear(t[0], t[1], t[2])}; },
                           {normal({3, 5}, 1), normal({4, 5}, 2), normal({4}, 3)});
  const at::Tensor id = integers({6}, 0, 5, 5).to(device().device);
  compare_with_differences([&](const Tensors& t) { return Tensors{embedding(id, t[0])}; }, {normal({5, 3}, 1)});
}

TEST(LinearsOnce, HalfPrecisionWorksWhereTheLibraryHasNone) {
  if (!device().kind->supports(at::kHalf) && device().name() != "cpu") GTEST_SKIP() << device().name() << " has no f16";
  const at::Tensor x = placed(normal({5, 16}, 1), at::kHalf).requires_grad_(),
                   w = placed(normal({8, 16}, 2), at::kHalf);
  const at::Tensor y = linear(x, w, {});
  expect_close(y, at::matmul(exact(x), exact(w).t()), 2e-3, "y");
  y.backward(at::ones_like(y));
  expect_close(x.grad(), exact(w).sum(0).expand({5, 16}), 2e-3, "dx");
}

TEST(LinearsOnce, ShapesWithoutMemory) {
  const at::Tensor x = on_meta(normal({3, 8}, 1).to(at::kBFloat16)), w = on_meta(normal({5, 8}, 2).to(at::kBFloat16));
  expect_shape(linear(x, w, {}), on_meta(normal({3, 5}, 1).to(at::kBFloat16)));
  EXPECT_FALSE(pack_linear(w).defined());
  expect_shape(embedding(on_meta(integers({4}, 0, 5, 1)), w), on_meta(normal({4, 8}, 1).to(at::kBFloat16)));
  const at::Tensor trained = w.detach().requires_grad_();
  linear(x, trained, {}).sum().backward();
  expect_shape(trained.grad(), w);
}

}  // namespace
}  // namespace apus::ops::test
