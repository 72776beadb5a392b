// SPDX-License-Identifier: Apache-2.0
// Answers that are shown beside rewarded ones: their loss against central differences, their share of an update's loss,
// and what they teach a model that rewards alone would not.
#include "algos/chord.h"

#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "nn/training_step.h"
#include "tests/algos/learning.h"

namespace apus {
namespace {

using learning::Student;
using learning::Tasks;

const RegisterReward<learning::Reversed> reversed_beside("test reversed beside");

GrpoOptions shown_with(std::optional<double> mu) {
  GrpoOptions o;
  o.reward_funcs = {"test reversed beside"}, o.num_generations = 4;
  o.max_completion_length = learning::kDigits + 2, o.beta = 0;
  if (!mu) return o;
  o.chord_sft_dataset = {"rows"}, o.chord_mu_peak = o.chord_mu_valley = *mu;
  return o;
}

TEST(Chord, GradientOfTokensIsThatOfDifferences) {
  const std::vector<double> at = {-0.05, -0.7, -2.5};
  for (const bool by_doubt : {false, true}) {
    const at::Tensor logprob_N = at::tensor(at, at::kDouble).requires_grad_(true);
    const at::Tensor loss = shown_token_losses(logprob_N, by_doubt).sum();
    loss.backward();
    double sum = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      // The weight is no function of what is learnt: it stays as it is while the log-probability moves.
      const double p = std::exp(at[i]), weight = by_doubt ? p * (1 - p) : 1, step = 1e-5;
      const auto moved = [&](double x) { return -x * weight; };
      EXPECT_NEAR(logprob_N.grad()[static_cast<int64_t>(i)].item<double>(),
                  (moved(at[i] + step) - moved(at[i] - step)) / (2 * step), 1e-8);
      sum += moved(at[i]);
    }
    EXPECT_NEAR(loss.item<double>(), sum, 1e-12);
  }
}

// The loss of an update, as the trainer divides it.
struct OneUpdate {
  double loss(std::optional<double> mu, bool by_doubt = false) {
    GrpoOptions o = shown_with(mu);
    o.chord_enable_phi_function = by_doubt;
    const LoopOptions loop{.per_device_train_batch_size = 4, .gradient_accumulation_steps = 2};
    Grpo grpo(o);
    grpo.begin(student.setting(loop));
    Tasks shown(31, 3, true);
    if (mu) grpo.show(shown);
    Actors actors{.policy = *student.model, .rollout = &rollout};
    std::vector<Update> updates = grpo.collect(actors, {*Tasks(5, 2, false).next()});
    batches = updates.at(0).size();
    double total = 0, sum = 0;
    for (const Batch& batch : updates[0]) total += grpo.count(batch);
    for (Batch& batch : updates[0]) {
      batch = batch.to(golden::device());
      set_training(batch.step, {});
      const Loss loss = grpo.loss(actors, batch, Forward{});
      sum += loss.sum.item<double>();
      for (const auto& [name, ratio] : loss.metrics)
        if (name == "chord_sft_loss") nll += ratio.sum.item<double>(), tokens += ratio.count.item<double>();
    }
    return sum / total;
  }
  Student student;
  Rollout rollout{*student.model, student.options(), {.max_sequences = 64, .max_model_len = 64}};
  size_t batches = 0;
  double nll = 0, tokens = 0;  // of what was shown
};

TEST(Chord, SharesAnUpdateByMu) {
  OneUpdate plain, none, half, all, doubtful;
  const double rewards = plain.loss(std::nullopt);
  EXPECT_EQ(plain.batches, 2u);
  EXPECT_EQ(none.loss(0.0), rewards);
  EXPECT_EQ(none.batches, 4u) << "as many that are shown";
  const double shown = all.loss(1.0);
  EXPECT_EQ(all.tokens, 2 * 3 * (learning::kDigits + 1.0));
  EXPECT_NEAR(shown, all.nll / all.tokens, 1e-6 * std::abs(shown)) << "the mean of the shown tokens";
  EXPECT_NEAR(half.loss(0.25), 0.75 * rewards + 0.25 * shown, 1e-6 * std::abs(shown));
  const double weighed = doubtful.loss(1.0, true);
  EXPECT_LT(weighed, shown * 0.25 + 1e-6);
  EXPECT_GT(weighed, 0);
}

TEST(Chord, TeachesWhatNoRewardWouldFind) {
  Student student;
  const double before = student.exact();
  EXPECT_LT(before, 0.1);
  GrpoOptions o = shown_with(0.9);
  o.chord_mu_valley = 0.1, o.chord_mu_warmup_steps = 5, o.chord_mu_decay_steps = 80;
  Tasks tasks(23, 1, false), shown(31, 32, true);
  Rollout rollout(*student.model, student.options(), {.max_sequences = 256, .max_model_len = 64});
  const LoopOptions loop{.max_steps = 120, .per_device_train_batch_size = 32, .gradient_accumulation_steps = 1};
  Grpo grpo(o);
  grpo.begin(student.setting(loop));
  grpo.show(shown);
  student.train(grpo, tasks, &rollout, loop, 2e-3);
  EXPECT_GT(student.exact(), 0.3);
  EXPECT_TRUE(student.history.at(1).contains("chord_sft_loss"));
}

TEST(Chord, GoesOnWhereItWas) {
  Student student;
  const GrpoOptions o = shown_with(0.5);
  Tasks rows(31, 1, true);
  Chord chord(o, rows, at::kCPU);
  Actors actors{.policy = *student.model};
  Update first(3), second(1), again(1);
  chord.add_to(first, actors, 0, 1);
  const Json state = parse_json(json_text(chord.state()), "a checkpoint", Fault::Data);
  chord.add_to(second, actors, 1, 1);
  Tasks fresh(31, 1, true);
  Chord resumed(o, fresh, at::kCPU);
  resumed.restore(state);
  resumed.add_to(again, actors, 1, 1);
  EXPECT_TRUE(second.at(1).id_T.equal(again.at(1).id_T));
  EXPECT_FALSE(second.at(1).id_T.equal(first.at(3).id_T));
}

}  // namespace
}  // namespace apus
