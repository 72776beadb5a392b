// SPDX-License-Identifier: Apache-2.0
// rope and swiglu.
#include <ATen/ops/cat.h>
#include <ATen/ops/silu.h>

#include "tests/ops/devices.h"

namespace apus::ops::test {
namespace {

// HuggingFace's form: x cos + rotate_half(x) sin on the rotated part, cos and sin repeated over both halves.
at::Tensor rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t r = cos.size(1);
  const at::Tensor turn = x.narrow(2, 0, 2 * r), pass = x.narrow(2, 2 * r, x.size(2) - 2 * r);
  const at::Tensor half = at::cat({-turn.narrow(2, r, r), turn.narrow(2, 0, r)}, 2);
  const at::Tensor c = at::cat({cos, cos}, 1).unsqueeze(1), s = at::cat({sin, sin}, 1).unsqueeze(1);
  return at::cat({turn * c + half * s, pass}, 2);
}

struct Angles {
  Angles(int64_t tokens, int64_t r) {
    const at::Tensor angle = normal({tokens, r}, 99, 3);
    cos = angle.cos().to(at::kFloat);
    sin = angle.sin().to(at::kFloat);
  }
  at::Tensor cos, sin;
};

struct RopeShape {
  int64_t tokens, heads, k_heads, size, r;
};
const std::vector<RopeShape> rope_shapes{
    {0, 2, 1, 8, 4}, {1, 1, 1, 2, 1}, {5, 4, 2, 32, 16}, {7, 6, 3, 24, 8}, {3, 2, 2, 16, 0}};

class Pointwise : public OpTest {};

TEST_P(Pointwise, RopeIsTheFormula) {
  for (const RopeShape& s : rope_shapes) {
    const Angles a(s.tokens, s.r);
    const at::Tensor cos = a.cos.to(device().device), sin = a.sin.to(device().device);
    compare(
        [&](const Tensors& t) {
          const auto [q, k] = rope(t[0], t[1], cos, sin);
          return Tensors{q, k};
        },
        [&](const Tensors& t) {
          const at::Tensor c = a.cos.to(at::kDouble), n = a.sin.to(at::kDouble);
          return Tensors{rotated(t[0], c, n), rotated(t[1], c, n)};
        },
        {normal({s.tokens, s.heads, s.size}, 1), normal({s.tokens, s.k_heads, s.size}, 2)}, GetParam());
  }
}

TEST_P(Pointwise, RopeTakesSlicesOfAWiderTensor) {
  const Angles a(5, 8);
  const at::Tensor cos = a.cos.to(device().device), sin = a.sin.to(device().device);
  const at::Tensor qkv = placed(normal({5, 8 * 16}, 1), GetParam());
  const at::Tensor q = qkv.narrow(1, 0, 64).view({5, 4, 16}), k = qkv.narrow(1, 64, 32).view({5, 2, 16});
  const auto [turned_q, turned_k] = rope(q, k, cos, sin);
  const auto [same_q, same_k] = rope(q.contiguous(), k.contiguous(), cos, sin);
  EXPECT_EQ(error(turned_q, same_q), 0);
  EXPECT_EQ(error(turned_k, same_k), 0);
}

TEST_P(Pointwise, SwigluIsTheFormula) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{0, 8}, {1, 1}, {5, 48}, {64, 7}})
    compare([](const Tensors& t) { return Tensors{swiglu(t[0], t[1])}; },
            [](const Tensors& t) { return Tensors{at::silu(t[0]) * t[1]}; }, {normal(shape, 1, 3), normal(shape, 2)},
            GetParam());
}

TEST_P(Pointwise, SwigluTakesSlicesOfAWiderTensor) {
  const at::Tensor both = placed(normal({5, 64}, 1), GetParam());
  const at::Tensor gate = both.narrow(1, 0, 32), up = both.narrow(1, 32, 32);
  EXPECT_EQ(error(swiglu(gate, up), swiglu(gate.contiguous(), up.contiguous())), 0);
}

TEST_P(Pointwise, SwigluOfExtremeGatesIsFinite) {
  const at::Tensor gate =
      placed(at::tensor({-1e4, -100.0, 0.0, 100.0, 1e4}, at::kDouble), GetParam()).view({1, 5}).requires_grad_();
  const at::Tensor y = swiglu(gate, at::ones_like(gate));
  y.sum().backward();
  EXPECT_TRUE(at::isfinite(exact(y)).all().item<bool>());
  EXPECT_TRUE(at::isfinite(exact(gate.grad())).all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Ops, Pointwise, ::testing::ValuesIn(dtypes()), dtype_of);

TEST(PointwiseOnce, GradientsAreTheDifferences) {
  const Angles a(3, 3);
  const at::Tensor cos = a.cos.to(device().device), sin = a.sin.to(device().device);
  compare_with_differences(
      [&](const Tensors& t) {
        const auto [q, k] = rope(t[0], t[1], cos, sin);
        return Tensors{q, k};
      },
      {normal({3, 2, 8}, 1), normal({3, 1, 8}, 2)});
  compare_with_differences([](const Tensors& t) { return Tensors{swiglu(t[0], t[1])}; },
                           {normal({3, 5}, 1), normal({3, 5}, 2)});
}

TEST(PointwiseOnce, ShapesWithoutMemory) {
  const Angles a(3, 4);
  const at::Tensor q = on_meta(normal({3, 4, 8}, 1).to(at::kFloat)), k = on_meta(normal({3, 2, 8}, 1).to(at::kFloat));
  const auto [turned_q, turned_k] = rope(q, k, on_meta(a.cos), on_meta(a.sin));
  expect_shape(turned_q, q);
  expect_shape(turned_k, k);
  expect_shape(swiglu(q, q), q);
}

}  // namespace
}  // namespace apus::ops::test
