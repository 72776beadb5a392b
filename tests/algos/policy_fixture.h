// SPDX-License-Identifier: Apache-2.0
// Three answers with a token that is an observation (left out of N), and the numbers that are worked out for them.
#pragma once

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "algos/policy/policy_loss.h"
#include "algos/policy/token_picks.h"

namespace apus::fixture {

using Rows = std::vector<std::vector<double>>;

inline const Rows kNew = {{-0.3, -1.2, -0.3, -2.0}, {-0.9, -0.1}, {-1.5, -0.4}};
inline const Rows kOld = {{-0.7, -1.0, -0.35, -1.2}, {-0.6, -0.45}, {-1.5, -0.45}};
inline const Rows kReference = {{-0.6, -1.1, -0.5, -1.4}, {-0.8, -0.3}, {-1.2, -0.4}};
inline const Rows kEngine = {{-0.9, -1.02, -0.33, -0.4}, {-0.58, -1.3}, {-1.45, -0.47}};

inline at::Tensor flat(const Rows& rows) {
  std::vector<double> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  return at::tensor(all, at::kDouble);
}

inline PolicyTokens tokens(const Rows& now = kNew, const Rows& old = kOld,
                           const std::vector<double>& advantages = {1.2, -0.8, 0.5}) {
  PolicyTokens t;
  std::vector<double> advantage;
  std::vector<int64_t> sequence;
  for (size_t s = 0; s < now.size(); ++s)
    for (size_t i = 0; i < now[s].size(); ++i)
      advantage.push_back(advantages[s]), sequence.push_back(static_cast<int64_t>(s));
  t.logprob_N = flat(now).requires_grad_(true), t.old_N = flat(old);
  t.advantage_N = at::tensor(advantage, at::kDouble), t.sequence_N = at::tensor(sequence, at::kLong);
  t.sequences = static_cast<int64_t>(now.size());
  return t;
}

inline void expect_near(const at::Tensor& got, const Rows& expected, double tolerance = 2e-6) {
  const at::Tensor wanted = flat(expected);
  ASSERT_EQ(got.numel(), wanted.numel());
  for (int64_t i = 0; i < got.numel(); ++i)
    EXPECT_NEAR(got[i].item<double>(), wanted[i].item<double>(), tolerance) << "token " << i;
}

struct Result {
  double loss;
  at::Tensor gradient_N;
};

inline double divisor(const PolicyTokens& t, Normaliser normaliser, double longest = 8) {
  switch (normaliser) {
    case Normaliser::Tokens:
      return static_cast<double>(t.old_N.numel());
    case Normaliser::MicroBatch:
      return 1;
    case Normaliser::Constant:
      return static_cast<double>(t.sequences) * longest;
    case Normaliser::Groups:
      return static_cast<double>(t.groups);
    default:
      return static_cast<double>(t.sequences);
  }
}

inline Result reduced(const PolicyTokens& t, const at::Tensor& loss_N, Normaliser normaliser) {
  const at::Tensor loss = (loss_N * token_factors(t, normaliser)).sum() / divisor(t, normaliser);
  const at::Tensor gradient = torch::autograd::grad({loss}, {t.logprob_N}, {}, true)[0];
  return {loss.item<double>(), gradient};
}

inline double sum_of_one_rank(double x) { return x; }

// With the tokens that the loss treats apart, these being the whole update.
inline PolicyTokens picked(const std::string& name, PolicyTokens t, const PolicyOptions& o) {
  const auto pick_by = policy_loss_named(name).pick_by;
  if (!pick_by) return t;
  const at::Tensor value_N = pick_by(t, o,
                                     {.advantage = mean_of_update({t.advantage_N}, sum_of_one_rank),
                                      .logprob = mean_of_update({t.logprob_N}, sum_of_one_rank)});
  t.picked_N = highest_tokens({value_N}, o.cov_ratio, sum_of_one_rank)[0];
  return t;
}

inline Result loss_of(const std::string& name, const PolicyTokens& t, const PolicyOptions& o) {
  const PolicyLossInfo& info = policy_loss_named(name);
  return reduced(t, info.token_loss(picked(name, t, o), o), info.normaliser);
}

}  // namespace apus::fixture
