// SPDX-License-Identifier: Apache-2.0
// Losses of the policy gradient against vectors worked out with plain doubles (their identifiers are kept), and all of
// them against finite differences.
#include "algos/policy/policy_loss.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "tests/algos/policy_fixture.h"

namespace apus {
namespace {

using fixture::expect_near;
using fixture::loss_of;
using fixture::picked;
using fixture::Rows;
using fixture::tokens;

const PolicyOptions kClip{.epsilon = 0.2, .epsilon_high = 0.28, .delta = {}};

PolicyOptions at_level(RatioLevel level) {
  PolicyOptions o = kClip;
  o.level = level;
  return o;
}

struct Expected {
  const char *id, *loss_type;
  PolicyOptions options;
  double loss;
  Rows gradient;
};

TEST(PolicyLoss, FollowsTheVectors) {
  PolicyOptions dual = kClip;
  dual.delta = 1.3;
  const PolicyOptions sequence = at_level(RatioLevel::Sequence);
  for (const Expected& e : {
           Expected{"PG-1",
                    "grpo",
                    kClip,
                    -0.234997,
                    {{0, -0.081873, -0.105127, -0.044933}, {0, 0.189209}, {-0.083333, -0.087606}}},
           Expected{"PG-2",
                    "dapo",
                    kClip,
                    -0.446197,
                    {{0, -0.122810, -0.157691, -0.067399}, {0, 0.141907}, {-0.062500, -0.065704}}},
           Expected{"PG-2",
                    "bnpo",
                    kClip,
                    -0.446197,
                    {{0, -0.122810, -0.157691, -0.067399}, {0, 0.141907}, {-0.062500, -0.065704}}},
           Expected{"PG-7",
                    "grpo",
                    sequence,
                    -0.246082,
                    {{-0.087153, -0.087153, -0.087153, -0.087153}, {0.136709, 0.136709}, {-0.085443, -0.085443}}},
           Expected{"PG-9", "luspo", kClip, -1.189392, {}},
           Expected{"PG-10",
                    "dapo",
                    dual,
                    -0.458104,
                    {{0, -0.122810, -0.157691, -0.067399}, {0, 0}, {-0.062500, -0.065704}}},
           Expected{"PG-12",
                    "sapo",
                    kClip,
                    -0.590570,
                    {{-0.140513, -0.081204, -0.105058, -0.041692}, {0.096969, 0.180338}, {-0.083333, -0.087548}}},
           Expected{"PG-15", "gmpo", kClip, -0.221761, {}},
       }) {
    SCOPED_TRACE(str(e.id, " ", e.loss_type));
    const fixture::Result got = loss_of(e.loss_type, tokens(), e.options);
    EXPECT_NEAR(got.loss, e.loss, 2e-6);
    if (!e.gradient.empty()) expect_near(got.gradient_N, e.gradient);
  }
  // PG-4 and PG-5: what Dr.GRPO and LUSPO divide is the same sum.
  const PolicyTokens t = tokens();
  const at::Tensor loss_N = policy_loss_named("grpo").token_loss(t, kClip);
  EXPECT_NEAR(loss_N.sum().item<double>(), -3.569578, 2e-6);
  EXPECT_NEAR(fixture::reduced(t, loss_N, Normaliser::SequenceSums).loss, -1.189859, 2e-6);
  EXPECT_NEAR(loss_of("dr_grpo", t, kClip).loss, -3.569578 / 24, 2e-6);
}

// PG-C: which tokens are clipped, and on which side.
TEST(PolicyLoss, CountsWhatIsClipped) {
  const Clipped clipped = clipped_tokens(tokens(), kClip);
  expect_near(clipped.high_N.to(at::kDouble), {{1, 0, 0, 0}, {0, 0}, {0, 0}});
  expect_near(clipped.low_N.to(at::kDouble), {{0, 0, 0, 0}, {1, 0}, {0, 0}});
}

// PG-6: the mean over a micro-batch's tokens is another number when the batch is divided otherwise.
TEST(PolicyLoss, OfMicroBatchesDependsOnTheirDivision) {
  const auto part = [](size_t first, size_t end) {
    const auto rows = [&](const Rows& all) {
      return Rows(all.begin() + static_cast<long>(first), all.begin() + static_cast<long>(end));
    };
    const std::vector<double> advantages = {1.2, -0.8, 0.5};
    return tokens(rows(fixture::kNew), rows(fixture::kOld),
                  {advantages.begin() + static_cast<long>(first), advantages.begin() + static_cast<long>(end)});
  };
  const double a = loss_of("bnpo", part(0, 2), kClip).loss, b = loss_of("bnpo", part(2, 3), kClip).loss;
  EXPECT_NEAR(a, -0.423990, 2e-6);
  EXPECT_NEAR(b, -0.512818, 2e-6);
  EXPECT_NEAR((a + b) / 2, -0.468404, 2e-6);
}

// PG-S and PG-K: single tokens.
TEST(PolicyLoss, OfSingleTokens) {
  const double two = std::log(2.0), half = std::log(0.5);
  PolicyOptions dual{.epsilon = 0.2, .epsilon_high = 0.2, .delta = 1.5};
  expect_near(policy_loss_named("dapo").token_loss(tokens({{two}, {two}, {half}}, {{0}, {0}, {0}}, {2, -2, 2}), dual),
              {{-2.4}, {3}, {-1}});
  const Rows now = {{-0.7}, {-1.2}, {-0.4}, {-2.1}};
  Rows old = now;
  const std::vector<double> ratios = {1, 1.14, 1.56, 1};
  for (size_t i = 0; i < 4; ++i) old[i][0] -= std::log(ratios[i]);
  // Of the published vector the tokens whose ratio is not below the range: CISPO's bound is the upper one alone.
  const at::Tensor cispo =
      policy_loss_named("cispo").token_loss(tokens(now, old, {1, -0.5, 2, -1}), {.epsilon_high = 1.28, .delta = {}});
  expect_near(cispo.narrow(0, 0, 3), {{0.7}, {-0.684}, {1.024}});
}

// PG-13, but for the token whose ratio is below 0.8.
TEST(PolicyLoss, OfCispoIsWeighedByABoundedRatio) {
  const PolicyTokens t = tokens();
  const at::Tensor loss_N = policy_loss_named("cispo").token_loss(t, {.epsilon_high = 1.28, .delta = {}});
  expect_near(
      loss_N,
      {{0.460800, 1.178972, 0.378458, 2.4 * std::exp(-0.8)}, {-0.72 * std::exp(-0.3), -0.102400}, {0.75, 0.210254}});
}

// PG-0: at ratio 1 all are the plain policy gradient.
TEST(PolicyLoss, StartsAsThePlainPolicyGradient) {
  for (const char* name : {"dapo", "cispo", "dppo_tv", "dppo_kl", "vespo", "dro", "clip_cov", "kl_cov", "fipo"}) {
    PolicyOptions o = kClip;
    o.epsilon_high = name == std::string("cispo") ? 5 : 0.28;
    o.clip_cov_low = 1e9;  // nothing is dropped
    o.kl_cov_coef = 0;     // nothing is held
    const fixture::Result got = loss_of(name, tokens(fixture::kNew, fixture::kNew), o);
    SCOPED_TRACE(name);
    expect_near(got.gradient_N, {{-0.15, -0.15, -0.15, -0.15}, {0.1, 0.1}, {-0.0625, -0.0625}});
  }
}

TEST(PolicyLoss, HasTheGradientOfItsValue) {
  for (const auto& [name, info] : Registry<PolicyLossInfo>::of().all()) {
    // These weigh by a detached ratio: their gradient is not that of their value, by design. And which token has the
    // highest covariance changes at once.
    if (name.ends_with("_cov")) continue;
    if (name == "cispo" || name == "vespo" || name.rfind("dppo", 0) == 0 || name == "fipo") continue;
    for (const RatioLevel level : {RatioLevel::Token, RatioLevel::Sequence}) {
      const auto with_groups = [&](const Rows& now) {
        PolicyTokens t = tokens(now);
        t.groups = 1, t.group_S = at::zeros({3}, at::kLong);
        return t;
      };
      const at::Tensor gradient = loss_of(name, with_groups(fixture::kNew), at_level(level)).gradient_N;
      constexpr double h = 1e-6;
      int64_t n = 0;
      for (size_t s = 0; s < 3; ++s)
        for (size_t i = 0; i < fixture::kNew[s].size(); ++i, ++n) {
          Rows up = fixture::kNew, down = fixture::kNew;
          up[s][i] += h, down[s][i] -= h;
          const double slope = (loss_of(name, with_groups(up), at_level(level)).loss -
                                loss_of(name, with_groups(down), at_level(level)).loss) /
                               (2 * h);
          EXPECT_NEAR(gradient[n].item<double>(), slope, 1e-6) << name << ", token " << n;
        }
    }
  }
}

// The gradient of each token with the value of the sequence.
TEST(PolicyLoss, OfSequenceAndTokenLevels) {
  const auto whole = loss_of("grpo", tokens(), at_level(RatioLevel::Sequence)),
             each = loss_of("grpo", tokens(), at_level(RatioLevel::SequenceToken));
  EXPECT_NEAR(whole.loss, each.loss, 1e-12);
  expect_near(each.gradient_N.narrow(0, 0, 4), {{-0.087153, -0.087153, -0.087153, -0.087153}});
  const Rows one = {{-0.3}, {-1.2}}, before = {{-0.5}, {-1.0}};
  EXPECT_NEAR(loss_of("grpo", tokens(one, before, {1, -1}), at_level(RatioLevel::Sequence)).loss,
              loss_of("grpo", tokens(one, before, {1, -1}), kClip).loss, 1e-12)
      << "of answers of one token both are the same";
}

TEST(PolicyLoss, OfFipoLooksAtWhatComesAfter) {
  const PolicyTokens t = tokens();
  PolicyOptions o = kClip;
  const at::Tensor plain = policy_loss_named("dapo").token_loss(t, o), got = policy_loss_named("fipo").token_loss(t, o);
  const double g = std::exp2(-1.0 / 32);
  const std::vector<std::vector<double>> moved = {{0.4, -0.2, 0.05, -0.8}, {-0.3, 0.35}, {0, 0.05}};
  Rows weights = moved;
  for (size_t s = 0; s < moved.size(); ++s)
    for (size_t i = 0; i < moved[s].size(); ++i) {
      double sum = 0;
      for (size_t k = i; k < moved[s].size(); ++k) sum += std::pow(g, static_cast<double>(k - i)) * moved[s][k];
      weights[s][i] = std::clamp(std::exp(sum), 1.0, 1.2);
    }
  expect_near((got / plain).detach(), weights);
  o.fipo_safety_threshold = 1.4;  // the second answer's last token is bad, and 1.419 times as likely
  EXPECT_NEAR((policy_loss_named("fipo").token_loss(t, o) / plain)[5].item<double>(), 1.0, 1e-9);
}

TEST(PolicyLoss, OfRealTellsRightFromWrong) {
  PolicyTokens t = tokens();
  t.groups = 2, t.group_S = at::tensor({0, 0, 1}, at::kLong);  // the third answer has nothing to be compared with
  const double right = (0.4 - 0.2 + 0.05 - 0.8) / 4 / 0.5, wrong = 0.05 / 2 / 0.5;
  const at::Tensor loss_N = policy_loss_named("real").token_loss(t, kClip);
  EXPECT_NEAR(loss_N.sum().item<double>(), std::log1p(std::exp(wrong)) + std::log1p(std::exp(-right)), 1e-9);
  EXPECT_EQ(loss_N.narrow(0, 6, 2).sum().item<double>(), 0);
}

TEST(PolicyLoss, OfDppoDropsWhatHasMovedFar) {
  // p - p_old of the first answer: 0.244, -0.067, 0.036, -0.166; of the second: -0.142, 0.267.
  const PolicyTokens t = tokens();
  const at::Tensor tv = policy_loss_named("dppo_tv").token_loss(t, {.epsilon = 0.1, .epsilon_high = 0.2, .delta = {}});
  EXPECT_EQ(tv[0].item<double>(), 0);
  EXPECT_NE(tv[3].item<double>(), 0) << "a good token that became less likely is not dropped";
  EXPECT_EQ(tv[4].item<double>(), 0);
  EXPECT_NEAR(tv[5].item<double>(), 0.8 * std::exp(0.35) * -0.1, 1e-9);
  const at::Tensor kl =
      policy_loss_named("dppo_kl").token_loss(t, {.epsilon = 0.01, .epsilon_high = 0.05, .delta = {}});
  EXPECT_EQ(kl[0].item<double>(), 0);
  EXPECT_EQ(kl[4].item<double>(), 0);
  EXPECT_NE(kl[2].item<double>(), 0);
}

TEST(PolicyLoss, OfVespoFallsOnBothSides) {
  const auto weight = [](double moved, double advantage) {
    const PolicyTokens t = tokens({{-1 + moved}}, {{-1}}, {advantage});
    return (policy_loss_named("vespo").token_loss(t, {}) / (-t.advantage_N * t.logprob_N)).item<double>();
  };
  EXPECT_NEAR(weight(0, 1), 1, 1e-12);
  EXPECT_NEAR(weight(0.5, 1), std::exp(2 * 0.5 + 3 * (1 - std::exp(0.5))), 1e-9);
  EXPECT_NEAR(weight(-0.5, -1), std::exp(3 * -0.5 + 2 * (1 - std::exp(-0.5))), 1e-9);
}

TEST(PolicyLoss, OfCovarianceTouchesTheHighestToken) {
  Rows now = fixture::kNew;
  now[0][2] = -0.32;  // as no two tokens may be alike: of equal ones all are touched
  const PolicyTokens t = tokens(now);
  PolicyOptions o = kClip;
  o.clip_cov_low = 0;
  const at::Tensor cov = (t.advantage_N - t.advantage_N.mean()) * (t.logprob_N - t.logprob_N.mean()).detach();
  const int64_t best = cov.argmax().item<int64_t>();
  const at::Tensor plain = policy_loss_named("dapo").token_loss(t, o),
                   kl = policy_loss_named("kl_cov").token_loss(picked("kl_cov", t, o), o);
  const at::Tensor unclipped = -t.log_ratio().exp() * t.advantage_N;
  for (int64_t i = 0; i < 8; ++i)
    EXPECT_NEAR(kl[i].item<double>() - unclipped[i].item<double>(),
                i == best ? t.log_ratio()[i].abs().item<double>() : 0, 1e-12);
  const at::Tensor clip = policy_loss_named("clip_cov").token_loss(picked("clip_cov", t, o), o);
  EXPECT_EQ(clip.eq(plain).logical_not().sum().item<int64_t>(), 1) << "one token is dropped";
  EXPECT_EQ(clip.eq(0).sum().item<int64_t>(), 1);
}

}  // namespace
}  // namespace apus
