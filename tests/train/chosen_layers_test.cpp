// SPDX-License-Identifier: Apache-2.0
// LISA: the layers that are trained change with the updates, the others stay as they are and have no state.
#include "train/chosen_layers.h"

#include <gtest/gtest.h>

#include "tests/refusal.h"
#include "tests/train/training.h"

namespace apus {
namespace {

using golden::Case;
using golden::TestRun;
using golden::weights;

TEST(ChosenLayers, AreDrawn) {
  std::set<std::set<int64_t>> draws;
  for (int64_t draw = 0; draw < 50; ++draw) {
    const std::set<int64_t> layers = drawn_layers(6, 2, 7, draw);
    EXPECT_EQ(layers.size(), 2u);
    EXPECT_TRUE(*layers.begin() >= 0 && *layers.rbegin() < 6);
    EXPECT_EQ(layers, drawn_layers(6, 2, 7, draw));
    draws.insert(layers);
  }
  EXPECT_EQ(draws.size(), 15u) << "all pairs of six";
}

TEST(ChosenLayers, TheOthersRest) {
  const Case c("train_qwen2");
  const Json hyper = c.json["runs"]["adamw_hf_trainer_groups"]["hyper"];
  TrainerOptions options;
  options.loop.max_steps = 2;  // one draw
  TestRun run(golden::owned_model(c.dir / "checkpoint"), hyper, golden::train_batches(c), options, {}, {}, nullptr, 1);
  const auto before = weights(*run.model);
  const std::set<int64_t> trained = drawn_layers(run.model->shape().layers, 1, 5, 0);
  run.trainer->run();
  const auto after = weights(*run.model);
  const auto state = run.optimizer->state();
  for (const auto& [name, value] : after) {
    const size_t at = name.find(".layers.");
    const bool rests = at != std::string::npos && !trained.count(std::stoll(name.substr(at + 8)));
    EXPECT_EQ(at::equal(value, before.at(name)), rests) << name;
    if (rests) EXPECT_EQ(state.count(name + "/exp_avg"), 0u) << name;
  }
}

TEST(ChosenLayers, NotMoreThanThereAre) {
  const Case c("train_qwen2");
  const auto model = golden::owned_model(c.dir / "checkpoint");
  const auto optimizer = make_optimizer({}, {{.name = "all", .lr = 1, .params = golden::trainable(*model)}});
  test::expect_says(
      test::refusal(Fault::Usage,
                    [&] { ChosenLayers(*model, *optimizer, {.layers = model->shape().layers, .count = 99}); }),
      "this model has");
}

}  // namespace
}  // namespace apus
