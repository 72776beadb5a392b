// SPDX-License-Identifier: Apache-2.0
#include "ops/divergence.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <gtest/gtest.h>

#include "tests/golden.h"

namespace apus::ops {
namespace {

at::Tensor random_numbers(std::vector<int64_t> sizes, int64_t seed, at::ScalarType type = at::kDouble) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  return at::randn(sizes, generator, at::TensorOptions().dtype(at::kDouble)).to(type);
}

// By the definition, without any care for memory.
at::Tensor plain(const at::Tensor& student, const at::Tensor& teacher, const DivergenceRule& rule) {
  at::Tensor s = student, t = teacher;
  if (rule.top_k > 0) {
    const auto best = at::topk(teacher, rule.top_k, -1);
    t = std::get<0>(best), s = student.gather(1, std::get<1>(best));
  }
  const at::Tensor p = at::softmax(s / rule.temperature, -1), q = at::softmax(t / rule.temperature, -1);
  const auto kl = [](const at::Tensor& a, const at::Tensor& b) { return (a * (a.log() - b.log())).sum(-1); };
  if (rule.beta == 0) return kl(q, p);
  if (rule.beta == 1) return kl(p, q);
  const at::Tensor m = p * (1 - rule.beta) + q * rule.beta;
  return kl(q, m) * rule.beta + kl(p, m) * (1 - rule.beta);
}

const std::vector<DivergenceRule> kRules = {
    {.beta = 0},
    {.beta = 1},
    {.beta = 0.5},
    {.beta = 0.1, .temperature = 0.9},
    {.beta = 0.5, .temperature = 2, .top_k = 3},
    {.beta = 0, .top_k = 4},
    {.beta = 1, .temperature = 0.7, .top_k = 2},
};

TEST(Divergence, ValuesByTheDefinitionAndGradientsByDifferences) {
  const at::Tensor student = random_numbers({4, 9}, 1), teacher = random_numbers({4, 9}, 2) * 2;
  for (const DivergenceRule& rule : kRules) {
    const RowDivergence rows = divergence(student, teacher, rule);
    EXPECT_LT((rows.value_n - plain(student, teacher, rule)).abs().max().item<double>(), 1e-12)
        << rule.beta << " " << rule.top_k;
    for (int64_t j = 0; j < 9; ++j) {
      const double h = 1e-5;
      at::Tensor up = student.clone(), down = student.clone();
      up.select(1, j).add_(h), down.select(1, j).sub_(h);
      const at::Tensor slope = (plain(up, teacher, rule) - plain(down, teacher, rule)) / (2 * h);
      EXPECT_LT((rows.gradient_nV.select(1, j) - slope).abs().max().item<double>(), 1e-8)
          << rule.beta << " " << rule.top_k << " " << j;
    }
  }
}

TEST(Divergence, IsZeroOfEqualsAndBounded) {
  const at::Tensor x = random_numbers({3, 8}, 5, at::kFloat), far = x * -40;
  for (const DivergenceRule& rule : kRules) {
    EXPECT_LT(divergence(x, x, rule).value_n.abs().max().item<double>(), 1e-6);
    const RowDivergence rows = divergence(x, far, rule);
    EXPECT_TRUE(rows.value_n.isfinite().all().item<bool>());
    EXPECT_TRUE(rows.gradient_nV.isfinite().all().item<bool>());
    if (rule.beta > 0 && rule.beta < 1) {
      EXPECT_LE(rows.value_n.max().item<double>(), std::log(2.0) + 1e-6);
    }
  }
}

HeadFactors factors(int64_t tokens, int64_t vocabulary, int64_t seed, bool low) {
  const auto of = [&](std::vector<int64_t> sizes, int64_t k) {
    return random_numbers(sizes, seed + k, at::kFloat).to(golden::device());
  };
  HeadFactors f{of({tokens, 6}, 0), of({vocabulary, 6}, 1)};
  if (low) f.low_TR = of({tokens, 2}, 2), f.low_VR = of({vocabulary, 2}, 3);
  return f;
}

at::Tensor logits_of(const HeadFactors& f) {
  const at::Tensor logits = f.hidden_TD.matmul(f.weight_VD.t());
  return f.low_TR.defined() ? logits + f.low_TR.matmul(f.low_VR.t()) : logits;
}

// Two models of different width of vocabulary; the teacher reads the compared tokens at other places.
TEST(HeadDivergence, IsThatOfTheRowsAndFlowsIntoAllFactors) {
  const HeadFactors student = factors(5, 12, 10, true), teacher = factors(7, 10, 20, false);
  const at::Tensor label = at::tensor({3, -100, 4, 5, -100}, at::kLong).to(golden::device());
  const at::Tensor told = at::tensor({-100, -100, 3, -100, 4, 5, -100}, at::kLong).to(golden::device());
  const std::vector<at::Tensor> leaves = {student.hidden_TD, student.weight_VD, student.low_TR, student.low_VR};
  for (const at::Tensor& leaf : leaves) at::Tensor(leaf).set_requires_grad(true);
  const DivergenceRule rule{.beta = 0.3, .temperature = 0.9, .factor = 0.25};
  const HeadDivergence got = head_divergence(student, label, teacher, told, rule);
  got.sum.backward();

  const auto rows = [](const at::Tensor& x, std::vector<int64_t> which) {
    return x.index_select(0, at::tensor(which, at::kLong).to(x.device())).narrow(1, 0, 10).to(at::kCPU);
  };
  std::vector<at::Tensor> again;
  for (const at::Tensor& leaf : leaves) again.push_back(leaf.detach().clone().set_requires_grad(true));
  const at::Tensor s = rows(logits_of({again[0], again[1], again[2], again[3]}), {0, 2, 3});
  const at::Tensor wanted = plain(s, rows(logits_of(teacher), {2, 4, 5}), rule);
  (wanted * 0.25).sum().backward();
  EXPECT_LT((got.value_n.to(at::kCPU) - wanted.detach()).abs().max().item<double>(), 1e-5);
  EXPECT_NEAR(got.sum.item<double>(), wanted.sum().item<double>() * 0.25, 1e-5);
  for (size_t i = 0; i < leaves.size(); ++i)
    EXPECT_LT((leaves[i].grad() - again[i].grad()).abs().max().item<double>(), 1e-5) << i;
}

TEST(HeadTopEntropy, IsThatOfTheLikeliestTokens) {
  const HeadFactors f = factors(4, 12, 30, false);
  const at::Tensor label = at::tensor({1, -100, 2, 3}, at::kLong).to(golden::device());
  const at::Tensor got = head_top_entropy(f, label, 5).to(at::kCPU);
  const at::Tensor log_p = at::log_softmax(std::get<0>(at::topk(logits_of(f).to(at::kCPU), 5, -1)), -1);
  const at::Tensor wanted = -(log_p.exp() * log_p).sum(-1);
  for (const int64_t t : {0, 2, 3}) EXPECT_NEAR(got[t].item<double>(), wanted[t].item<double>(), 1e-5);
  EXPECT_EQ(got[1].item<double>(), 0);
}

}  // namespace
}  // namespace apus::ops
