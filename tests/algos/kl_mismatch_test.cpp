// SPDX-License-Identifier: Apache-2.0
// Estimates of the KL divergence, and corrections for an engine that disagrees, against vectors worked out with plain
// doubles; then a whole step on three logits.
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/softmax.h>

#include <cmath>

#include "algos/advantages.h"
#include "algos/policy/kl.h"
#include "algos/policy/mismatch.h"
#include "tests/algos/policy_fixture.h"

namespace apus {
namespace {

using fixture::expect_near;
using fixture::Rows;
using fixture::tokens;

at::Tensor one(double x) { return at::tensor({x}, at::kDouble); }

TEST(KlEstimates, FollowTheVectors) {
  struct Vector {
    double l, k2, k3, slope;
  };
  for (const Vector& v :
       {Vector{-3, 4.5, 10, 0}, Vector{-1, 0.5, 0.718282, -1.718282}, Vector{-0.1, 0.005, 0.005171, -0.105171},
        Vector{0, 0, 0, 0}, Vector{0.1, 0.005, 0.004837, 0.095163}, Vector{1, 0.5, 0.367879, 0.632121},
        Vector{3, 4.5, 2.049787, 0.950213}}) {
    at::Tensor now = one(v.l).requires_grad_(true);
    EXPECT_NEAR(kl_of_tokens(now, one(0), KlEstimate::K1).item<double>(), v.l, 1e-12);
    EXPECT_NEAR(kl_of_tokens(now, one(0), KlEstimate::K2).item<double>(), v.k2, 2e-6);
    const at::Tensor k3 = kl_of_tokens(now, one(0), KlEstimate::K3);
    EXPECT_NEAR(k3.item<double>(), v.k3, 2e-6);
    EXPECT_NEAR(torch::autograd::grad({k3.sum()}, {now})[0].item<double>(), v.slope, 2e-6);
  }
  // Unbounded, as TRL's.
  at::Tensor far = one(-3).requires_grad_(true);
  const at::Tensor k3 = kl_of_tokens(far, one(0), KlEstimate::K3, false);
  EXPECT_NEAR(k3.item<double>(), 16.085537, 2e-6);
  EXPECT_NEAR(torch::autograd::grad({k3.sum()}, {far})[0].item<double>(), -19.085537, 2e-6);
}

// KL-F and KL-L.
TEST(KlEstimates, OfTheFixture) {
  const PolicyTokens t = tokens();
  const at::Tensor reference = fixture::flat(fixture::kReference);
  const at::Tensor k2 = kl_of_tokens(t.logprob_N, reference, KlEstimate::K2),
                   k3 = kl_of_tokens(t.logprob_N, reference, KlEstimate::K3);
  expect_near(k3, {{0.040818, 0.005171, 0.018731, 0.222119}, {0.005171, 0.018731}, {0.049859, 0}});
  EXPECT_NEAR(k2.mean().item<double>(), 0.040000, 2e-6);
  EXPECT_NEAR(k3.mean().item<double>(), 0.045075, 2e-6);
  const PolicyOptions clip{.epsilon = 0.2, .epsilon_high = 0.28, .delta = {}};
  const at::Tensor loss_N = policy_loss_named("dapo").token_loss(t, clip) + 0.04 * k3;
  EXPECT_NEAR(fixture::reduced(t, loss_N, Normaliser::Sequence).loss, -0.233549, 2e-6);
  EXPECT_NEAR(fixture::reduced(t, loss_N, Normaliser::Constant).loss, -0.148131, 2e-6);
  const fixture::Result dapo = fixture::reduced(t, loss_N, Normaliser::Tokens);
  EXPECT_NEAR(dapo.loss, -0.444394, 2e-6);
  expect_near(dapo.gradient_N,
              {{0.001296, -0.123335, -0.156784, -0.071510}, {-0.000526, 0.142813}, {-0.064249, -0.065704}});
}

// KL-X: as a loss k1 gives nothing on average, k2 the gradient of KL(p || q), k3 that of KL(q || p).
TEST(KlEstimates, HaveTheGradientsThatAreSaidOfThem) {
  const at::Tensor logits = at::tensor({0.5, 0.3, 0.2}, at::kDouble).log().requires_grad_(true);
  const at::Tensor q = at::tensor({0.25, 0.25, 0.5}, at::kDouble).log(), log_p = at::log_softmax(logits, 0);
  const at::Tensor p = log_p.detach().exp();
  const auto slope = [&](KlEstimate estimate) {
    return torch::autograd::grad({(p * kl_of_tokens(log_p, q, estimate)).sum()}, {logits}, {}, true)[0];
  };
  expect_near(slope(KlEstimate::K1), {{0, 0, 0}});
  expect_near(slope(KlEstimate::K2), {{0.237568, -0.010707, -0.226861}});
  expect_near(slope(KlEstimate::K3), {{0.25, 0.05, -0.3}});
  EXPECT_NEAR((p * kl_of_tokens(log_p, q, KlEstimate::K3)).sum().item<double>(), 0.218012, 2e-6);
}

double corrected(Correction correction, CorrectionBounds bounds, Normaliser normaliser) {
  const PolicyTokens t = tokens();
  const at::Tensor weight = correction_weights(t, fixture::flat(fixture::kEngine), correction, bounds);
  const at::Tensor loss_N =
      policy_loss_named("dapo").token_loss(t, {.epsilon = 0.2, .epsilon_high = 0.28, .delta = {}});
  return fixture::reduced(t, loss_N * weight, normaliser).loss;
}

TEST(Mismatch, IsCorrectedAsTheVectorsSay) {
  const auto both = [](Correction correction, CorrectionBounds bounds) {
    return std::pair{corrected(correction, bounds, Normaliser::Tokens),
                     corrected(correction, bounds, Normaliser::Sequence)};
  };
  const auto expect = [](std::pair<double, double> got, double token, double sequence, const char* id) {
    EXPECT_NEAR(got.first, token, 2e-6) << id;
    EXPECT_NEAR(got.second, sequence, 2e-6) << id;
  };
  expect(both(Correction::TokenTruncate, {.high = 2}), -0.308907, -0.048774, "TIS-1");
  expect(both(Correction::TokenTruncate, {.high = 1.2}), -0.418323, -0.197402, "TIS-2");
  expect(both(Correction::SequenceTruncate, {.high = 2, .product = true}), 0.023095, 0.228329, "TIS-4");
  expect(both(Correction::SequenceMask, {.high = 3, .product = true}), 0.088184, 0.315115, "TIS-6");
}

TEST(Mismatch, IsMaskedOutsideItsBounds) {
  const PolicyTokens t = tokens();
  const at::Tensor engine = fixture::flat(fixture::kEngine);
  expect_near(correction_weights(t, engine, Correction::TokenMask, {.high = 1.1, .low = 0.5}),
              {{0, 1.020201, 0.980199, 0}, {0.980199, 0}, {0.951229, 1.020201}});
  // The geometric means: 0.861, 1.514, 0.985.
  expect_near(correction_weights(t, engine, Correction::SequenceMask, {.high = 1.5}),
              {{1.221403, 1.020201, 0.980199, 0.449329}, {0, 0}, {0.951229, 1.020201}});
  expect_near(correction_weights(t, t.old_N, Correction::TokenTruncate, {.high = 1}), {{1, 1, 1, 1}, {1, 1}, {1, 1}});
}

// MIS-M.
TEST(Mismatch, IsMeasured) {
  const auto m = mismatch_metrics(tokens(), fixture::flat(fixture::kEngine));
  for (const auto& [name, expected] : std::map<std::string, double>{{"abs_mean", 0.2475},
                                                                    {"abs_max", 0.85},
                                                                    {"kl", -0.025},
                                                                    {"k3_kl", 0.095301},
                                                                    {"chi2_token", 0.509463},
                                                                    {"chi2_seq", 1.167423},
                                                                    {"training_ppl", 2.198387},
                                                                    {"rollout_ppl", 2.370438},
                                                                    {"ess", 0.831471}})
    EXPECT_NEAR(m.at(name).item<double>(), expected, 2e-6) << name;
}

// OPSM-1 and OPSM-2.
TEST(Mismatch, LeavesOutBadAnswersThatAreFarAway) {
  expect_near(on_policy_enough(tokens(), 1e-4).to(at::kDouble), {{1, 1, 1, 1}, {1, 1}, {1, 1}});
  const PolicyTokens flipped = tokens(fixture::kNew, fixture::kOld, {-1.2, -0.8, 0.5});
  expect_near(on_policy_enough(flipped, 1e-4).to(at::kDouble), {{0, 0, 0, 0}, {1, 1}, {1, 1}});
}

// E2E: logits of three actions, four samples, several steps with the old log-probs kept.
TEST(PolicyStep, OnThreeLogits) {
  struct Step {
    Rows logits;
    double loss;
    Rows gradient;
  };
  const std::map<int, Step> expected = {
      {0, {{{0.2, -0.1, 0}}, 0, {{0.216506, -0.433012, 0.216506}}}},
      {1, {{{0.135048, 0.029904, -0.064952}}, -0.087696, {{0.236069, -0.466291, 0.230222}}}},
      {2, {{{0.064228, 0.169791, -0.134018}}, -0.175853, {{0.059954, -0.143453, 0.083499}}}},
      {4, {{{0.027698, 0.256478, -0.184176}}, -0.194918, {{0.063540, -0.147322, 0.083783}}}}};
  const at::Tensor actions = at::tensor({0, 1, 2, 1}, at::kLong);
  const auto advantage = advantages({.rewards = {0, 1, 0, 1}, .groups = {0, 0, 0, 0}}, {.epsilon = 1e-6});
  at::Tensor logits = at::tensor({0.2, -0.1, 0.0}, at::kDouble);
  PolicyTokens t;
  t.old_N = at::log_softmax(logits, 0).index_select(0, actions);
  t.advantage_N = at::tensor(advantage, at::kDouble);
  t.sequence_N = at::tensor({0, 1, 2, 3}, at::kLong), t.sequences = 4;
  const PolicyOptions clip{.epsilon = 0.2, .epsilon_high = 0.28, .delta = {}};
  for (int step = 0; step <= 4; ++step) {
    logits = logits.detach().requires_grad_(true);
    t.logprob_N = at::log_softmax(logits, 0).index_select(0, actions);
    const at::Tensor loss = policy_loss_named("grpo").token_loss(t, clip).mean();
    const at::Tensor gradient = torch::autograd::grad({loss}, {logits})[0];
    if (const auto found = expected.find(step); found != expected.end()) {
      SCOPED_TRACE(step);
      expect_near(logits.detach(), found->second.logits);
      EXPECT_NEAR(loss.item<double>(), found->second.loss, 2e-6);
      expect_near(gradient, found->second.gradient);
    }
    logits = logits.detach() - 0.3 * gradient;
  }
}

}  // namespace
}  // namespace apus
