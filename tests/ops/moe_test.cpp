// SPDX-License-Identifier: Apache-2.0
// route_topk, moe_ffn and grouped_linear.
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include "ops/expert_pairs.h"
#include "tests/ops/devices.h"

namespace apus::ops::test {
namespace {

// Every token through its experts one at a time.
at::Tensor formula(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& expert, const at::Tensor& gate_up,
                   const at::Tensor& down) {
  const int64_t f = gate_up.size(1) / 2;
  Tensors rows;
  for (int64_t t = 0; t < x.size(0); ++t) {
    at::Tensor y = x[t] * 0;
    for (int64_t i = 0; i < expert.size(1); ++i) {
      const int64_t e = expert[t][i].item<int64_t>();
      const at::Tensor gate = at::matmul(gate_up[e].narrow(0, 0, f), x[t]),
                       up = at::matmul(gate_up[e].narrow(0, f, f), x[t]);
      y = y + weight[t][i] * at::matmul(down[e], at::silu(gate) * up);
    }
    rows.push_back(y);
  }
  return rows.empty() ? x * 1 : at::stack(rows);
}

struct Sizes {
  int64_t tokens, hidden, ffn, experts, k;
};
const std::vector<Sizes> sizes{{0, 8, 4, 3, 2}, {1, 8, 4, 3, 1}, {9, 16, 12, 6, 2}, {20, 24, 8, 4, 4}};

// k different experts a token; the last expert never has one unless k takes them all.
at::Tensor experts_of(const Sizes& s) {
  at::Tensor expert = at::zeros({s.tokens, s.k}, at::kLong);
  const int64_t used = std::max(s.k, s.experts - 1);
  for (int64_t t = 0; t < s.tokens; ++t)
    for (int64_t i = 0; i < s.k; ++i) expert[t][i] = (t * 5 + i * (t % 2 ? 1 : used - 1)) % used;
  return expert;
}

class Moe : public OpTest {};

TEST_P(Moe, RoutingIsHuggingFaces) {
  for (const bool normalise : {false, true})
    for (const int64_t tokens : {0, 1, 17}) {
      const at::Tensor logits = normal({tokens, 8}, 1, 2);
      const at::Tensor expert = std::get<1>(at::topk(rounded(logits, GetParam()), 3, -1));
      const auto formula_weight = [&](const at::Tensor& l) {
        const at::Tensor chosen = at::softmax(l, -1).gather(1, expert);
        return normalise ? chosen / chosen.sum(-1, true) : chosen;
      };
      compare(
          [&](const Tensors& t) {
            const Routing r = route_topk(t[0], 3, normalise);
            EXPECT_FALSE(r.expert_Tk.requires_grad());
            EXPECT_EQ(r.expert_Tk.scalar_type(), at::kLong);
            // Equal bf16 logits may be taken in either order; the weights are the same then.
            const at::Tensor taken = rounded(logits, GetParam()).gather(1, r.expert_Tk.to(at::kCPU));
            EXPECT_TRUE(taken.equal(rounded(logits, GetParam()).gather(1, expert)));
            return Tensors{r.weight_Tk};
          },
          [&](const Tensors& t) { return Tensors{formula_weight(t[0])}; }, {logits}, GetParam());
    }
}

TEST_P(Moe, FfnIsTheFormula) {
  for (const Sizes& s : sizes) {
    SCOPED_TRACE(str(s.tokens, " tokens, ", s.k, " of ", s.experts));
    const at::Tensor expert = experts_of(s);
    compare([&](const Tensors& t) { return Tensors{moe_ffn(t[0], t[1], expert.to(device().device), t[2], t[3])}; },
            [&](const Tensors& t) { return Tensors{formula(t[0], t[1], expert, t[2], t[3])}; },
            {normal({s.tokens, s.hidden}, 1), normal({s.tokens, s.k}, 2).abs(),
             normal({s.experts, 2 * s.ffn, s.hidden}, 3, 0.3), normal({s.experts, s.hidden, s.ffn}, 4, 0.3)},
            GetParam());
  }
}

TEST_P(Moe, GroupedLinearIsOneProductARun) {
  const Sizes s = sizes[2];
  const at::Tensor expert = experts_of(s).to(device().device), w = normal({s.experts, s.ffn, s.hidden}, 3, 0.3);
  const ExpertPairs pairs = pairs_by_expert(expert, s.experts);
  const at::Tensor rows = normal({s.tokens * s.k, s.hidden}, 1), stack = placed(w, GetParam());
  const auto truth = [&](const at::Tensor& x) {
    Tensors runs;
    int64_t begin = 0;
    for (int64_t e = 0; e < s.experts; begin += pairs.count()[e++])
      runs.push_back(at::matmul(x.narrow(0, begin, pairs.count()[e]), rounded(w[e], GetParam()).t()));
    return at::cat(runs, 0);
  };
  for (const bool listed : {false, true})
    compare(
        [&](const Tensors& t) {
          return Tensors{grouped_linear(t[0], listed ? stack.unbind(0) : Tensors{stack}, pairs.ends)};
        },
        [&](const Tensors& t) { return Tensors{truth(t[0])}; }, {rows}, GetParam());
  // The matrices' gradient: grad' x of each run, 0 without rows.
  const at::Tensor grad = placed(normal({s.tokens * s.k, s.ffn}, 5), GetParam()), x = placed(rows, GetParam());
  const at::Tensor dweight = std::get<1>(grouped_linear_backward(grad, x, stack, pairs.ends, {false, true}));
  int64_t begin = 0;
  for (int64_t e = 0; e < s.experts; begin += pairs.count()[e++])
    expect_close(
        dweight[e],
        at::matmul(exact(grad.narrow(0, begin, pairs.count()[e])).t(), exact(x.narrow(0, begin, pairs.count()[e]))),
        tolerance(GetParam()), str("expert ", e));
  EXPECT_EQ(pairs.count().back(), 0);
}

// The host sorts what it has; a device's are sorted there.
TEST_P(Moe, PairsAreTheSameOnEveryDevice) {
  for (const Sizes& s : sizes) {
    const at::Tensor expert = experts_of(s);
    const ExpertPairs here = pairs_by_expert(expert, s.experts),
                      there = pairs_by_expert(expert.to(device().device), s.experts);
    EXPECT_EQ(there.count(), here.count());
    const auto same = [](const at::Tensor& a, const at::Tensor& b) { return a.to(at::kCPU).equal(b); };
    EXPECT_TRUE(same(there.token, here.token) && same(there.pair, here.pair) && same(there.ends, here.ends));
    const at::Tensor of_pair = expert.flatten().index_select(0, here.pair);
    EXPECT_TRUE(same(there.expert(), of_pair) && same(here.expert(), of_pair));
    const ExpertPairs unread(there.token, there.pair, there.ends);
    EXPECT_TRUE(same(unread.expert(), of_pair));
  }
}

TEST_P(Moe, SomeOfThePairsKeepTheirOrder) {
  const Sizes s = sizes[2];
  const ExpertPairs all = pairs_by_expert(experts_of(s).to(device().device), s.experts);
  const at::Tensor place = at::tensor({0, 3, 4, 9, 17}, at::kLong);
  const ExpertPairs some = pairs_at(all, place.to(device().device));
  int64_t begin = 0, taken = 0;
  for (int64_t e = 0; e < s.experts; begin += all.count()[e++]) {
    const int64_t n = place.ge(begin).logical_and(place.lt(begin + all.count()[e])).sum().item<int64_t>();
    EXPECT_EQ(some.count()[e], n);
    EXPECT_EQ(some.ends.to(at::kCPU)[e].item<int64_t>(), taken += n);
  }
  EXPECT_TRUE(some.pair.to(at::kCPU).equal(all.pair.to(at::kCPU).index_select(0, place)));
}

TEST_P(Moe, FrozenExpertsGetNoGradient) {
  const Sizes s = sizes[2];
  const at::Tensor x = placed(normal({s.tokens, s.hidden}, 1), GetParam()).requires_grad_();
  const at::Tensor weight = placed(normal({s.tokens, s.k}, 2), GetParam());
  const at::Tensor gate_up = placed(normal({s.experts, 2 * s.ffn, s.hidden}, 3), GetParam());
  const at::Tensor down = placed(normal({s.experts, s.hidden, s.ffn}, 4), GetParam());
  moe_ffn(x, weight, experts_of(s).to(device().device), gate_up, down).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  for (const at::Tensor& t : {weight, gate_up, down}) EXPECT_FALSE(t.grad().defined());
}

INSTANTIATE_TEST_SUITE_P(Ops, Moe, ::testing::ValuesIn(dtypes()), dtype_of);

TEST(MoeOnce, GradientsAreTheDifferences) {
  for (const bool normalise : {false, true})
    compare_with_differences([&](const Tensors& t) { return Tensors{route_topk(t[0], 2, normalise).weight_Tk}; },
                             {normal({3, 5}, 1)});
  const Sizes s{4, 3, 2, 3, 2};
  const at::Tensor expert = experts_of(s).to(device().device);
  compare_with_differences([&](const Tensors& t) { return Tensors{moe_ffn(t[0], t[1], expert, t[2], t[3])}; },
                           {normal({4, 3}, 1), normal({4, 2}, 2), normal({3, 4, 3}, 3), normal({3, 3, 2}, 4)});
}

TEST(MoeOnce, AnExpertThatIsNotThereIsRefused) {
  if (!device().device.is_cpu()) GTEST_SKIP() << "looking at the experts would make the device wait for the host";
  const at::Tensor x = placed(normal({1, 4}, 1), at::kFloat), w = placed(normal({1, 1}, 1), at::kFloat);
  const at::Tensor gate_up = placed(normal({2, 6, 4}, 1), at::kFloat), down = placed(normal({2, 4, 3}, 1), at::kFloat);
  EXPECT_THROW(moe_ffn(x, w, at::tensor({2}, at::kLong).view({1, 1}).to(device().device), gate_up, down), Error);
}

TEST(MoeOnce, ShapesWithoutMemory) {
  const at::Tensor logits = on_meta(normal({3, 5}, 1).to(at::kBFloat16)),
                   x = on_meta(normal({3, 8}, 1).to(at::kBFloat16));
  const Routing r = route_topk(logits, 2, true);
  expect_shape(r.weight_Tk, on_meta(normal({3, 2}, 1).to(at::kBFloat16)));
  expect_shape(r.expert_Tk, on_meta(integers({3, 2}, 0, 1, 1)));
  const at::Tensor gate_up = on_meta(normal({5, 6, 8}, 1).to(at::kBFloat16)),
                   down = on_meta(normal({5, 8, 3}, 1).to(at::kBFloat16));
  expect_shape(moe_ffn(x, r.weight_Tk, r.expert_Tk, gate_up, down), x);
}

}  // namespace
}  // namespace apus::ops::test
