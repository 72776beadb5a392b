// SPDX-License-Identifier: Apache-2.0
// The loss of the head that guesses tokens ahead: cross-entropy of what the head says of a text, read as the engine
// reads it, over the tokens that are learnt; and what it trains.
#include "algos/tokens_ahead.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randn.h>

#include "models/guess_head.h"
#include "nn/training_step.h"
#include "tests/train/training.h"

namespace apus {
namespace {

struct Ahead : ::testing::TestWithParam<const char*> {
  Ahead() {
    Json config = read_model_config(dir);
    config["num_nextn_predict_layers"] = 1;
    model = make_model(config, Head::Vocab, /*guesses=*/true);
    at::manual_seed(3);
    load_weights(*model, TensorFolder(dir),
                 {.dtype = at::kFloat, .device = golden::device(), .fresh = [](const auto&, const auto& shape) {
                    return at::randn(shape, at::kFloat) * 0.1;
                  }});
    for (int32_t row = 0; row < 3; ++row) {
      Sample& sample = samples.emplace_back();
      for (int32_t i = 0; i < 5 + 2 * row; ++i)
        sample.ids.push_back(3 + (7 * i + 11 * row) % 50), sample.trained.push_back(i > 1);
    }
  }
  // Of one row after the other: sum and count of what is to be learnt, by the engine's way of asking the head.
  std::pair<double, int64_t> wanted() const {
    const at::NoGradGuard no_grad;
    double sum = 0;
    int64_t count = 0;
    for (const Sample& sample : samples) {
      const auto n = std::ssize(sample.ids);
      const at::Tensor id_T = golden::ids_tensor({sample.ids.begin(), sample.ids.end()}, golden::device());
      Step step = packed_step({static_cast<int32_t>(n)}, golden::device()),
           shorter = packed_step({static_cast<int32_t>(n - 1)}, golden::device());
      const at::Tensor state_TD = model->forward(Inputs(id_T), step);
      const GuessHead& head = *model->guess_head();
      const at::Tensor ahead_TD =
                           head.states(*model, Inputs(id_T.narrow(0, 1, n - 1)), state_TD.narrow(0, 0, n - 1), shorter),
                       log_p = at::log_softmax(head.logits(*model, ahead_TD).to(at::kFloat), -1).cpu();
      for (int64_t t = 0; t + 2 < n; ++t)
        if (sample.trained[static_cast<size_t>(t + 2)])
          sum -= log_p[t][sample.ids[static_cast<size_t>(t + 2)]].item<double>(), ++count;
    }
    return {sum, count};
  }
  std::filesystem::path dir = golden::models() / GetParam() / "checkpoint";
  std::unique_ptr<Model> model;
  Samples samples;
};

TEST_P(Ahead, IsTheHeadsOwnCrossEntropy) {
  golden::trainable(*model);
  Batch batch = collate(samples).to(golden::device());
  set_training(batch.step, {});
  at::Tensor embedded_TD;
  Forward forward;
  forward.watch = [&](const std::string& part, const at::Tensor& x) {
    if (part == Forward::kEmbedding) embedded_TD = x;
  };
  const at::Tensor hidden_TD = forward.hidden(*model, batch);
  const AheadLoss loss = loss_ahead(*model, batch, embedded_TD, hidden_TD);
  const auto [sum, count] = wanted();
  EXPECT_EQ(loss.count.item<int64_t>(), count);
  EXPECT_NEAR(loss.nll_sum.item<double>(), sum, 1e-4 * sum);
  EXPECT_NEAR(loss.sum.item<double>(), sum, 1e-4 * sum);
  loss.sum.backward();
  int64_t own = 0;
  const std::string name = model->guess_head_name() + ".";
  model->visit([&](const std::string& parameter, Param& p) {
    if (!parameter.starts_with(name) || !p.trainable) return;
    ++own;
    EXPECT_TRUE(p.data.grad().defined()) << parameter;
  });
  EXPECT_GT(own, 5);
}

TEST_P(Ahead, CountsAsMuchAsIsSaid) {
  golden::trainable(*model);
  const auto loss_with = [&](int64_t layers, double factor) {
    SftOptions o;
    o.mtp_num_layers = layers, o.mtp_loss_scaling_factor = factor;
    Batch batch = collate(samples).to(golden::device());
    set_training(batch.step, {});
    Actors actors{.policy = *model};
    return Sft(o).loss(actors, batch, {});
  };
  const double alone = loss_with(0, 0.1).sum.item<double>(), both = loss_with(1, 0.25).sum.item<double>();
  const auto [sum, count] = wanted();
  EXPECT_NEAR(both, alone + 0.25 * sum, 1e-3);
  const Loss loss = loss_with(1, 0.1);
  EXPECT_NEAR(loss.metrics.at("mtp_loss").sum.item<double>(), sum, 1e-3);
  EXPECT_EQ(loss.metrics.at("mtp_loss").count.item<int64_t>(), count);
}

INSTANTIATE_TEST_SUITE_P(TokensAhead, Ahead, ::testing::Values("deepseek_v3", "glm4_moe", "qwen3_next"),
                         [](const auto& info) { return info.param; });

TEST(TokensAhead, ASequenceEndsWithoutOne) {
  const at::Tensor places = places_behind(packed_step({3, 1, 2}, at::kCPU));
  EXPECT_EQ(std::vector<int64_t>(places.data_ptr<int64_t>(), places.data_ptr<int64_t>() + 6),
            (std::vector<int64_t>{1, 2, 2, 3, 5, 5}));
}

}  // namespace
}  // namespace apus
