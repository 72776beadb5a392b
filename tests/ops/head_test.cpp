// SPDX-License-Identifier: Apache-2.0
// head_loss and head_logprob.
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cmath>

#include "tests/ops/devices.h"

namespace apus::ops::test {
namespace {

// The logits as the model sees them: rounded to the type of hidden and head, the gradient passing through.
at::Tensor logits_of(const at::Tensor& hidden, const at::Tensor& head, at::ScalarType type) {
  const at::Tensor exact_logits = at::matmul(hidden, head.t());
  return exact_logits + (rounded(exact_logits.detach(), type) - exact_logits.detach());
}

// torch's own loss per token, 0 where ignored.
at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& label, double smoothing) {
  return at::cross_entropy_loss(logits, label, {}, /*reduction none*/ 0, /*ignore_index=*/-100, smoothing);
}

struct Sizes {
  int64_t tokens, hidden, vocabulary;
};
const std::vector<Sizes> sizes{{0, 8, 5}, {1, 4, 3}, {9, 16, 40}, {70, 24, 101}};

// Every third label ignored from the second on.
at::Tensor labels(const Sizes& s) {
  at::Tensor label = integers({s.tokens}, 0, s.vocabulary, 7);
  for (int64_t i = 1; i < s.tokens; i += 3) label[i] = -100;
  return label;
}

Tensors inputs_of(const Sizes& s) {
  return {normal({s.tokens, s.hidden}, 1), normal({s.vocabulary, s.hidden}, 2, 0.5)};
}

class Head : public OpTest {};

TEST_P(Head, LossIsTorchsCrossEntropy) {
  for (const Sizes& s : sizes)
    for (const double smoothing : {0.0, 0.1, 0.9})
      for (const bool dft : {false, true}) {
        SCOPED_TRACE(str(s.tokens, " tokens, smoothing ", smoothing, ", dft ", dft));
        const at::Tensor label = labels(s), weight = normal({s.tokens}, 3).abs().to(at::kFloat);
        compare(
            [&](const Tensors& t) {
              const HeadLoss loss =
                  head_loss({t[0], t[1]}, label.to(device().device), weight.to(device().device), {smoothing, dft});
              return Tensors{loss.loss_sum};
            },
            [&](const Tensors& t) {
              const at::Tensor logits = logits_of(t[0], t[1], GetParam());
              at::Tensor loss = token_loss(logits, label, smoothing) * weight.to(at::kDouble);
              if (dft) loss = loss * (-token_loss(logits, label, 0)).exp().detach();
              return Tensors{loss.sum()};
            },
            inputs_of(s), GetParam());
      }
}

TEST_P(Head, WithoutWeightsEveryTokenCountsOnce) {
  const Sizes s = sizes[2];
  compare(
      [&](const Tensors& t) {
        return Tensors{head_loss({t[0], t[1]}, labels(s).to(device().device), {}, {}).loss_sum};
      },
      [&](const Tensors& t) { return Tensors{token_loss(logits_of(t[0], t[1], GetParam()), labels(s), 0).sum()}; },
      inputs_of(s), GetParam());
}

TEST_P(Head, NllAndCorrectAreReportedPerToken) {
  const Sizes s = sizes[3];
  const Tensors t{placed(inputs_of(s)[0], GetParam()), placed(inputs_of(s)[1], GetParam())};
  at::Tensor label = labels(s);
  const at::Tensor logits = logits_of(exact(t[0]), exact(t[1]), GetParam());
  label[0] = logits[0].argmax();  // at least one is right
  const HeadLoss loss = head_loss({t[0], t[1]}, label.to(device().device), {}, {0.3, true});
  EXPECT_FALSE(loss.nll_T.requires_grad());
  EXPECT_EQ(loss.correct_T.scalar_type(), at::kBool);
  expect_close(loss.nll_T, token_loss(logits, label, 0), tolerance(GetParam()), "nll");
  const at::Tensor right = logits.argmax(-1) == label;
  // Rounded logits may tie otherwise.
  EXPECT_TRUE(loss.correct_T.to(at::kCPU).equal(right) || at::elementSize(GetParam()) == 2);
  EXPECT_TRUE(loss.correct_T[0].item<bool>());
  EXPECT_FALSE(loss.correct_T[1].item<bool>());
}

TEST_P(Head, AllIgnoredGivesZeroLossAndZeroGradients) {
  const at::Tensor hidden = placed(normal({4, 8}, 1), GetParam()).requires_grad_(),
                   head = placed(normal({5, 8}, 2), GetParam()).requires_grad_();
  const at::Tensor label = at::ones({4}, at::kLong).mul(-100).to(device().device);
  const HeadLoss loss = head_loss({hidden, head}, label, {}, {});
  loss.loss_sum.backward();
  EXPECT_EQ(loss.loss_sum.item<double>(), 0);
  EXPECT_EQ(exact(hidden.grad()).abs().sum().item<double>(), 0);
  EXPECT_EQ(exact(head.grad()).abs().sum().item<double>(), 0);
}

TEST_P(Head, AFrozenHeadGetsNoGradient) {
  const Sizes s = sizes[2];
  const at::Tensor hidden = placed(inputs_of(s)[0], GetParam()).requires_grad_(),
                   head = placed(inputs_of(s)[1], GetParam());
  head_loss({hidden, head}, labels(s).to(device().device), {}, {}).loss_sum.backward();
  EXPECT_TRUE(hidden.grad().defined());
  EXPECT_FALSE(head.grad().defined());
}

// The scale of a bf16 gradient must not be rounded to bf16 itself:
// every value of the bf16 gradient is one rounding away.
TEST_P(Head, TheIncomingGradientScalesExactly) {
  const Sizes s = sizes[2];
  const auto gradient = [&](double scale) {
    const at::Tensor hidden = placed(inputs_of(s)[0], GetParam()).requires_grad_();
    const at::Tensor loss =
        head_loss({hidden, placed(inputs_of(s)[1], GetParam())}, labels(s).to(device().device), {}, {}).loss_sum;
    // Not (loss * scale): the gradient of that product is made in f64.
    loss.backward(at::ones_like(loss).mul_(scale));
    return exact(hidden.grad());
  };
  const at::Tensor expected = gradient(1) / 997, ratio = (gradient(1.0 / 997) / expected).nan_to_num(1);
  EXPECT_NEAR(ratio.mean().item<double>(), 1, at::elementSize(GetParam()) == 2 ? 2e-4 : 1e-6);
}

TEST_P(Head, LogprobAndEntropyAreTheFormula) {
  for (const Sizes& s : sizes)
    for (const double temperature : {1.0, 0.7}) {
      SCOPED_TRACE(str(s.tokens, " tokens, temperature ", temperature));
      const at::Tensor label = labels(s), kept = (label >= 0).to(at::kDouble);
      const auto both = [&](const at::Tensor& logits) {
        const at::Tensor logp = at::log_softmax(logits / temperature, -1);
        return Tensors{logp.gather(1, label.clamp_min(0).unsqueeze(1)).squeeze(1) * kept,
                       -(logp.exp() * logp).sum(-1) * kept};
      };
      compare(
          [&](const Tensors& t) {
            const HeadLogprob p = head_logprob({t[0], t[1]}, label.to(device().device), temperature, true);
            return Tensors{p.logprob_T, p.entropy_T};
          },
          [&](const Tensors& t) { return both(logits_of(t[0], t[1], GetParam())); }, inputs_of(s), GetParam(), 2);
      for (const int which : {0, 1})  // a gradient into one of the two only
        compare(
            [&](const Tensors& t) {
              const HeadLogprob p = head_logprob({t[0], t[1]}, label.to(device().device), temperature, which == 1);
              return Tensors{which == 0 ? p.logprob_T : p.entropy_T};
            },
            [&](const Tensors& t) { return Tensors{both(logits_of(t[0], t[1], GetParam()))[which]}; }, inputs_of(s),
            GetParam(), 2);
    }
}

// Both ops where logits are bent; the larger sizes by the processor's own kernels.
TEST_P(Head, BentLogitsAreTheFormula) {
  constexpr double kCap = 2.5, kTemperature = 0.7;
  for (const Sizes& s : std::vector<Sizes>{{9, 16, 40}, {70, 64, 1500}}) {
    const at::Tensor label = labels(s), there = label.to(device().device), kept = (label >= 0).to(at::kDouble);
    const auto bent = [&](const Tensors& t) { return (logits_of(t[0], t[1], GetParam()) / kCap).tanh() * kCap; };
    compare(
        [&](const Tensors& t) {
          return Tensors{head_loss({t[0], t[1], {}, {}, kCap}, there, {}, {0.1, false}).loss_sum};
        },
        [&](const Tensors& t) { return Tensors{token_loss(bent(t), label, 0.1).sum()}; }, inputs_of(s), GetParam(), 2);
    compare(
        [&](const Tensors& t) {
          const HeadLogprob p = head_logprob({t[0], t[1], {}, {}, kCap}, there, kTemperature, true);
          return Tensors{p.logprob_T, p.entropy_T};
        },
        [&](const Tensors& t) {
          const at::Tensor logp = at::log_softmax(bent(t) / kTemperature, -1);
          return Tensors{logp.gather(1, label.clamp_min(0).unsqueeze(1)).squeeze(1) * kept,
                         -(logp.exp() * logp).sum(-1) * kept};
        },
        inputs_of(s), GetParam(), 4);
  }
}

// A pair of low rank against the copied way: hidden states and head made wider by it, in f64.
TEST_P(Head, APairOfLowRankIsTheCopiedHead) {
  const auto copied = [](const Tensors& t) { return HeadFactors{at::cat({t[0], t[2]}, 1), at::cat({t[1], t[3]}, 1)}; };
  for (const Sizes& s :
       std::vector<Sizes>{{0, 8, 5}, {9, 16, 40}, {70, 64, 1500}})  // the last by the processor's own kernels
    for (const int64_t rank : {1, 8, 40}) {
      SCOPED_TRACE(str(s.tokens, " tokens, rank ", rank));
      const at::Tensor label = labels(s), placed_label = label.to(device().device),
                       weight = normal({s.tokens}, 3).abs().to(at::kFloat);
      Tensors inputs = inputs_of(s);
      inputs.push_back(normal({s.tokens, rank}, 4)), inputs.push_back(normal({s.vocabulary, rank}, 5, 0.5));
      compare(
          [&](const Tensors& t) {
            return Tensors{
                head_loss({t[0], t[1], t[2], t[3]}, placed_label, weight.to(device().device), {0.1, false}).loss_sum};
          },
          [&](const Tensors& t) {
            return Tensors{head_loss(copied(t), label, weight, {0.1, false}).loss_sum};
          },
          inputs, GetParam(), 2);
      compare(
          [&](const Tensors& t) {
            const HeadLogprob p = head_logprob({t[0], t[1], t[2], t[3]}, placed_label, 0.7, true);
            return Tensors{p.logprob_T, p.entropy_T};
          },
          [&](const Tensors& t) {
            const HeadLogprob p = head_logprob(copied(t), label, 0.7, true);
            return Tensors{p.logprob_T, p.entropy_T};
          },
          inputs, GetParam(), 4);
    }
}

TEST_P(Head, AFrozenHeadWithATrainedPairGetsNoGradient) {
  const Sizes s{50, 64, 1100};
  const at::Tensor hidden = placed(inputs_of(s)[0], GetParam()), head = placed(inputs_of(s)[1], GetParam());
  const at::Tensor low = placed(normal({s.tokens, 4}, 4), GetParam()).requires_grad_(),
                   low_head = placed(normal({s.vocabulary, 4}, 5), GetParam()).requires_grad_();
  const at::Tensor label = labels(s).to(device().device);
  head_loss({hidden, head, low, low_head}, label, {}, {}).loss_sum.backward();
  EXPECT_EQ(low.grad().sizes(), low.sizes());
  EXPECT_EQ(low_head.grad().sizes(), low_head.sizes());
  EXPECT_FALSE(hidden.grad().defined() || head.grad().defined());
  const at::Tensor of_loss = low_head.grad().clone();
  low_head.mutable_grad().reset();
  head_logprob({hidden, head, low, low_head}, label, 1, false).logprob_T.sum().neg().backward();
  expect_close(low_head.grad(), of_loss, 2 * tolerance(GetParam()), "the same gradient by both ops");
}

using LossSignature = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>(
    const at::Tensor&, const at::Tensor&, const OptionalTensor&, const OptionalTensor&, const at::Tensor&,
    const OptionalTensor&, double, bool, std::array<bool, 4>, int64_t, double);
using LogprobSignature = std::tuple<at::Tensor, at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&,
                                                                        const OptionalTensor&, const OptionalTensor&,
                                                                        const at::Tensor&, double, bool, int64_t,
                                                                        double);

TEST_P(Head, TheChunkSizeChangesNothing) {
  const Sizes s = sizes[3];
  const at::Tensor label = labels(s).to(device().device);
  const auto run = [&](int64_t chunk) {
    const at::Tensor hidden = placed(inputs_of(s)[0], GetParam()).requires_grad_(),
                     head = placed(inputs_of(s)[1], GetParam()).requires_grad_();
    const auto loss =
        handle<LossSignature>("apus::head_loss").call(hidden, head, {}, {}, label, {}, 0.1, false, {}, chunk, 0);
    const auto p =
        handle<LogprobSignature>("apus::head_logprob").call(hidden, head, {}, {}, label, 0.9, true, chunk, 0);
    (std::get<0>(loss) + (std::get<0>(p) * 0.3).sum() + (std::get<1>(p) * 0.2).sum()).backward();
    return Tensors{std::get<0>(loss).detach(), std::get<1>(loss), std::get<0>(p).detach(),
                   std::get<1>(p).detach(),    hidden.grad(),     head.grad()};
  };
  // libtorch 1.13 multiplies tiny bf16 matrices with bf16 sums: a chunk of one token meets that.
  const double limit = tolerance(GetParam()) * (GetParam() == at::kBFloat16 ? 3 : 1);
  const Tensors whole = run(1000);
  for (const int64_t chunk : {0, 1, 7, 46, 47}) {
    const Tensors parts = run(chunk);
    for (size_t i = 0; i < whole.size(); ++i)
      expect_close(parts[i], whole[i], limit, str("result ", i, ", chunk ", chunk));
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Head, ::testing::ValuesIn(dtypes()), dtype_of);

TEST(HeadOnce, GradientsAreTheDifferences) {
  const at::Tensor label = at::tensor({2, -100, 0, 3}, at::kLong).to(device().device),
                   weight = placed(normal({4}, 3).abs(), at::kFloat);
  const Tensors inputs{normal({4, 3}, 1), normal({5, 3}, 2)};
  compare_with_differences(
      [&](const Tensors& t) {
        return Tensors{head_loss({t[0], t[1]}, label, weight, {0.2, false}).loss_sum};
      },
      inputs);
  compare_with_differences(
      [&](const Tensors& t) {
        const HeadLogprob p = head_logprob({t[0], t[1]}, label, 1.3, true);
        return Tensors{p.logprob_T, p.entropy_T};
      },
      inputs);
}

TEST(HeadOnce, HugeLogitsStayFinite) {
  const at::Tensor hidden = placed(normal({3, 8}, 1, 300), at::kFloat).requires_grad_(),
                   head = placed(normal({6, 8}, 2), at::kFloat);
  const at::Tensor label = at::tensor({0, 1, 2}, at::kLong).to(device().device);
  const HeadLoss loss = head_loss({hidden, head}, label, {}, {0.1, true});
  const HeadLogprob p = head_logprob({hidden, head}, label, 1, true);
  (loss.loss_sum + p.logprob_T.sum() + p.entropy_T.sum()).backward();
  EXPECT_TRUE(std::isfinite(loss.loss_sum.item<double>()));
  EXPECT_TRUE(at::isfinite(exact(p.entropy_T)).all().item<bool>());
  EXPECT_TRUE(at::isfinite(exact(hidden.grad())).all().item<bool>());
}

TEST(HeadOnce, TheGradientCanBeTakenOnceOnly) {
  const at::Tensor hidden = placed(normal({3, 8}, 1), at::kFloat).requires_grad_(),
                   head = placed(normal({6, 8}, 2), at::kFloat);
  const at::Tensor loss =
      head_loss({hidden, head}, at::tensor({0, 1, 2}, at::kLong).to(device().device), {}, {}).loss_sum;
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_THROW(loss.backward(), std::exception);
}

TEST(HeadOnce, ShapesWithoutMemory) {
  const at::Tensor hidden = on_meta(normal({3, 8}, 1).to(at::kBFloat16)).requires_grad_(),
                   head = on_meta(normal({6, 8}, 2).to(at::kBFloat16));
  const at::Tensor label = on_meta(integers({3}, 0, 6, 1)), per_token = on_meta(normal({3}, 1).to(at::kFloat));
  const HeadLoss loss = head_loss({hidden, head}, label, {}, {});
  expect_shape(loss.loss_sum, per_token.sum());
  expect_shape(loss.nll_T, per_token);
  expect_shape(loss.correct_T, per_token.to(at::kBool));
  loss.loss_sum.backward();
  expect_shape(hidden.grad(), hidden);
  const HeadLogprob p = head_logprob({hidden, head}, label, 1, true);
  expect_shape(p.logprob_T, per_token);
  expect_shape(p.entropy_T, per_token);
  EXPECT_FALSE(head_logprob({hidden, head}, label, 1, false).entropy_T.defined());
}

}  // namespace
}  // namespace apus::ops::test
