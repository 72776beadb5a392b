// SPDX-License-Identifier: Apache-2.0
// Losses of preferences as pure functions: values worked out in plain double arithmetic (two of TRL's own through
// golden/rl_qwen2), gradients against central differences in double.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "algos/cpo.h"
#include "algos/dpo_loss.h"
#include "algos/kto.h"
#include "algos/orpo.h"
#include "algos/rm.h"
#include "algos/simpo.h"
#include "tests/golden.h"

namespace apus {
namespace {

using Numbers = std::vector<double>;

at::Tensor doubles(const Numbers& values) { return at::tensor(values, at::kDouble); }

void expect_values(const at::Tensor& got, const Numbers& wanted, double tolerance = 2e-6) {
  ASSERT_EQ(got.numel(), std::ssize(wanted));
  for (int64_t i = 0; i < got.numel(); ++i)
    EXPECT_NEAR(got[i].item<double>(), wanted[static_cast<size_t>(i)], tolerance) << i;
}

const PairLogprobs kPairs{doubles({-10.5, -20.0, -7.25}), doubles({-12.0, -18.0, -9.0}), doubles({-11.0, -19.0, -7.5}),
                          doubles({-11.5, -19.5, -8.0})};

PairLogprobs averaged(const PairLogprobs& p, const Numbers& chosen, const Numbers& rejected) {
  return {p.chosen_P / doubles(chosen), p.rejected_P / doubles(rejected), p.reference_chosen_P / doubles(chosen),
          p.reference_rejected_P / doubles(rejected)};
}

TEST(DpoLoss, IsWhatTheFormulasGive) {
  const auto at_beta = [](const std::string& type, double beta, DpoLossSpec spec = {}) {
    spec.beta = beta;
    return dpo_losses(type, kPairs, spec);
  };
  expect_values(at_beta("sigmoid", 0.1), {0.644397, 0.825939, 0.632599});
  expect_values(at_beta("sigmoid", 0.5), {0.474077, 1.501929, 0.428701});
  expect_values(at_beta("hinge", 0.1), {0.9, 1.25, 0.875});
  expect_values(at_beta("hinge", 0.5), {0.5, 2.25, 0.375});
  expect_values(at_beta("sigmoid", 0.1, {.label_smoothing = 0.1}), {0.654397, 0.800939, 0.645099});
  expect_values(at_beta("sigmoid", 0.5, {.label_smoothing = 0.1}), {0.524077, 1.376929, 0.491201});
  expect_values(at_beta("apo_down", 0.1), {0.987518, 1.037197, 0.975040});
  expect_values(at_beta("apo_down", 0.5), {0.939717, 1.154841, 0.879855});
  expect_values(at_beta("sppo_hard", 0.1), {40.5, 78.25, 38.5625});
  expect_values(at_beta("sppo_hard", 0.5), {0.5, 10.25, 0.5625});
  const PairLogprobs means = averaged(kPairs, {8, 12, 5}, {10, 9, 5});
  expect_values(dpo_losses("ipo", means, {.beta = 0.1}), {23.887656, 27.5625, 22.5625});
  expect_values(dpo_losses("ipo", means, {.beta = 0.5}), {0.787656, 1.5625, 0.5625});
  expect_values(dpo_losses("sigmoid", means, {.beta = 0.1}), {0.687538, 0.705725, 0.680725});
  EXPECT_THROW(at_beta("nonsense", 0.1), Error);
}

// Where the policy is the reference.
TEST(DpoLoss, AtTheStart) {
  const PairLogprobs same{kPairs.chosen_P, kPairs.rejected_P, kPairs.chosen_P, kPairs.rejected_P};
  for (const auto& [type, value] : std::vector<std::pair<std::string, double>>{{"sigmoid", 0.693147},
                                                                               {"robust", 0.693147},
                                                                               {"hinge", 1},
                                                                               {"ipo", 25},
                                                                               {"apo_zero", 1},
                                                                               {"apo_down", 1},
                                                                               {"nca_pair", 1.386294},
                                                                               {"bco_pair", 1.386294},
                                                                               {"sppo_hard", 50},
                                                                               {"aot", 0.693147},
                                                                               {"aot_unpaired", 0.693147},
                                                                               {"discopop", 0.846574}})
    expect_values(dpo_losses(type, same, {}), {value, value, value});
}

TEST(DpoLoss, IsTrlsOnTheSameLogProbabilities) {
  const golden::Case c("rl_qwen2");
  const auto of = [&](const char* name) { return c.tensor(name).to(at::kDouble); };
  const PairLogprobs sums{of("dpo/policy_chosen_logps"), of("dpo/policy_rejected_logps"), of("dpo/ref_chosen_logps"),
                          of("dpo/ref_rejected_logps")};
  const auto lengths = [&](const char* name) { return c.tensor(name).narrow(1, 1, 15).ge(0).sum(1).to(at::kDouble); };
  const at::Tensor chosen = lengths("dpo/chosen/labels"), rejected = lengths("dpo/rejected/labels");
  const PairLogprobs means{sums.chosen_P / chosen, sums.rejected_P / rejected, sums.reference_chosen_P / chosen,
                           sums.reference_rejected_P / rejected};
  struct Case {
    const char *type, *theirs;  // TRL calls aot_unpaired aot_pair
    double smoothing = 0, beta = 0.1;
  };
  for (const Case& each :
       {Case{"sigmoid", "sigmoid"}, Case{"sigmoid", "sigmoid", 0.1}, Case{"sigmoid", "sigmoid", 0, 0.5},
        Case{"hinge", "hinge"}, Case{"ipo", "ipo"}, Case{"robust", "robust", 0.1}, Case{"exo_pair", "exo_pair", 0.1},
        Case{"nca_pair", "nca_pair"}, Case{"sppo_hard", "sppo_hard"}, Case{"aot", "aot"},
        Case{"aot_unpaired", "aot_pair"}, Case{"apo_zero", "apo_zero"}, Case{"apo_down", "apo_down"},
        Case{"discopop", "discopop"}}) {
    const Json text = each.beta;
    const std::string key =
        str("trl/", each.theirs, "/beta=", text.dump(), "/label_smoothing=", Json(each.smoothing).dump());
    ASSERT_TRUE(c.json["dpo"].contains(key)) << key;
    const at::Tensor got = dpo_losses(each.type, std::string(each.type) == "ipo" ? means : sums,
                                      {.beta = each.beta, .label_smoothing = each.smoothing});
    expect_values(got, c.json["dpo"][key]["losses"].get<Numbers>(), 2e-5);
  }
}

// The gradient of f with respect to each of its arguments, against central differences.
void expect_gradients(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& f,
                      std::vector<at::Tensor> arguments, const std::string& what) {
  for (at::Tensor& x : arguments) x = x.detach().clone().set_requires_grad(true);
  f(arguments).sum().backward();
  for (const at::Tensor& x : arguments) {
    const at::Tensor gradient = x.grad();
    ASSERT_TRUE(gradient.defined()) << what;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double h = 1e-6;
      double* value = x.data_ptr<double>() + i;
      const double kept = *value;
      at::NoGradGuard no_grad;
      *value = kept + h;
      const double up = f(arguments).sum().item<double>();
      *value = kept - h;
      const double down = f(arguments).sum().item<double>();
      *value = kept;
      EXPECT_NEAR(gradient[i].item<double>(), (up - down) / (2 * h), 2e-6) << what << " " << i;
    }
  }
}

TEST(DpoLoss, GradientsOfEveryKind) {
  for (const std::string divergence : {"reverse_kl", "js_divergence", "alpha_divergence"})
    for (const std::string type : {"sigmoid", "hinge", "ipo", "robust", "exo_pair", "nca_pair", "bco_pair", "sppo_hard",
                                   "aot", "aot_unpaired", "apo_zero", "apo_down", "discopop"}) {
      const DpoLossSpec spec{
          .beta = 0.3, .label_smoothing = 0.1, .divergence = divergence, .divergence_alpha = 0.7, .bco_mean = 0.2};
      expect_gradients(
          [&](const std::vector<at::Tensor>& x) {
            return dpo_losses(type, {x[0], x[1], kPairs.reference_chosen_P, kPairs.reference_rejected_P}, spec);
          },
          {kPairs.chosen_P, kPairs.rejected_P}, type + " " + divergence);
    }
}

// d / d log p(chosen) = -beta sigma(-beta margin), and the other way round for the rejected one.
TEST(DpoLoss, GradientIsTheKnownOne) {
  const at::Tensor chosen = kPairs.chosen_P.clone().set_requires_grad(true),
                   rejected = kPairs.rejected_P.clone().set_requires_grad(true);
  dpo_losses("sigmoid", {chosen, rejected, kPairs.reference_chosen_P, kPairs.reference_rejected_P}, {})
      .sum()
      .backward();
  expect_values(chosen.grad(), {-0.047502, -0.056218, -0.046879});
  expect_values(rejected.grad(), {0.047502, 0.056218, 0.046879});
}

// Swapped answers flip the margin: loss(x) - loss(-x) = -beta x.
TEST(DpoLoss, OfSwappedAnswers) {
  const PairLogprobs swapped{kPairs.rejected_P, kPairs.chosen_P, kPairs.reference_rejected_P,
                             kPairs.reference_chosen_P};
  expect_values(dpo_losses("sigmoid", kPairs, {}) - dpo_losses("sigmoid", swapped, {}), {-0.1, 0.25, -0.125}, 1e-12);
}

TEST(KtoLoss, IsWhatTheFormulasGive) {
  const at::Tensor ratio = doubles({2, -1, 2, -3.5}), label = doubles({1, 1, 0, 0});
  expect_values(kto_losses(ratio, label, 0.3, {}), {0.457602, 0.532454, 0.542398, 0.406127});
  expect_values(kto_losses(ratio, label, 0.3, {.undesirable_weight = 1.5}), {0.457602, 0.532454, 0.813597, 0.609190});
  expect_values(kto_losses(ratio, label, 0.3, {.loss_type = "apo_zero_unpaired"}),
                {0.450166, 0.524979, 0.549834, 0.413382});
  const at::Tensor x = ratio.clone().set_requires_grad(true);
  kto_losses(x, label, 0.3, {.undesirable_weight = 1.5}).mean().backward();
  expect_values(x.grad(), {-0.006205, -0.006224, 0.009308, 0.009045});
  for (const char* type : {"kto", "apo_zero_unpaired"})
    expect_gradients(
        [&](const std::vector<at::Tensor>& a) {
          return kto_losses(a[0], label, 0.3, {.desirable_weight = 0.7, .loss_type = type});
        },
        {ratio}, type);
}

TEST(KtoLoss, MismatchedRowsHaveOthersAnswers) {
  const Samples rows = {{.ids = {1, 2, 3, 4}, .trained = {0, 0, 1, 1}},
                        {.ids = {5, 6, 7, 8, 9, 10}, .trained = {0, 0, 0, 1, 1, 0}},
                        {.ids = {11, 12, 13}, .trained = {0, 1, 1}}};
  const Samples mixed = mismatched(rows);
  ASSERT_EQ(mixed.size(), 3u);
  EXPECT_EQ(mixed[0].ids, (std::vector<int32_t>{1, 2, 12, 13}));
  EXPECT_EQ(mixed[0].trained, (std::vector<uint8_t>{0, 0, 1, 1}));
  EXPECT_EQ(mixed[1].ids, (std::vector<int32_t>{5, 6, 7, 3, 4}));
  EXPECT_EQ(mixed[2].ids, (std::vector<int32_t>{11, 8, 9, 10}));
  EXPECT_EQ(mixed[2].trained, (std::vector<uint8_t>{0, 1, 1, 0}));
}

TEST(OrpoLoss, IsWhatTheFormulasGive) {
  const at::Tensor chosen = doubles({-0.5, -1.1}), rejected = doubles({-0.9, -0.8});
  const at::Tensor odds = log_odds_ratio(chosen, rejected);
  expect_values(odds, {0.810917, -0.491846});
  expect_values(log_sigmoid(odds), {-0.367729, -0.969009});
  const at::Tensor c = chosen.clone().set_requires_grad(true), r = rejected.clone().set_requires_grad(true);
  (-log_sigmoid(log_odds_ratio(c, r)).mean() * 0.1).backward();
  expect_values(c.grad(), {-0.039100, -0.046508});
  expect_values(r.grad(), {0.025925, 0.056344});
  EXPECT_TRUE(std::isfinite(log_odds_ratio(doubles({0.0}), doubles({-1.0})).item<double>()));
}

TEST(SimpoLoss, IsWhatTheFormulasGive) {
  const at::Tensor length = doubles({8, 20});
  const at::Tensor chosen = doubles({-10.5, -22.0}), rejected = doubles({-14.0, -15.3}) / doubles({10, 18});
  expect_values(simpo_losses(chosen / length, rejected, {.beta = 2, .simpo_gamma = 0.5}), {0.868793, 1.313262});
  expect_values(simpo_losses(chosen / length, rejected, {.beta = 0.1, .simpo_gamma = 0.5}), {0.968639, 0.989712});
  const at::Tensor c = chosen.clone().set_requires_grad(true);
  simpo_losses(c / length, rejected, {.beta = 2, .simpo_gamma = 0.5}).mean().backward();
  expect_values(c.grad(), {-0.072568, -0.036553});
}

TEST(CpoLoss, IsWhatTheFormulasGive) {
  const at::Tensor chosen = doubles({-10.5, -22.0}), rejected = doubles({-14.0, -15.3});
  expect_values(cpo_losses(chosen, rejected, {}), {0.533382, 1.083241});
  for (const char* type : {"sigmoid", "hinge", "ipo"})
    expect_gradients(
        [&](const std::vector<at::Tensor>& x) {
          return cpo_losses(x[0], x[1], {.beta = 0.2, .loss_type = type, .label_smoothing = 0.05});
        },
        {chosen, rejected}, type);
}

TEST(RewardLoss, IsWhatTheFormulasGive) {
  const at::Tensor chosen = doubles({1.2, -0.3, 0.5, 2.0}), rejected = doubles({0.4, 0.1, 0.5, -1.0});
  expect_values(reward_losses(chosen, rejected, {}, 0), {0.371101, 0.913015, 0.693147, 0.048587});
  EXPECT_NEAR(reward_losses(chosen, rejected, {}, 0.01).mean().item<double>(), 0.517963, 2e-6);
  expect_values(reward_losses(chosen, rejected, chosen - rejected, 0), Numbers(4, 0.693147));
  expect_gradients(
      [&](const std::vector<at::Tensor>& x) {
        return reward_losses(x[0], x[1], doubles({0, 1, 0.5, 2}), 0.03);
      },
      {chosen, rejected}, "rm");
}

}  // namespace
}  // namespace apus
