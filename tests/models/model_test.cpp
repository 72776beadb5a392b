// SPDX-License-Identifier: Apache-2.0
// What every model does around its layers: the walk and its runners, positions, media, and a head of scores.
#include "models/model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/weights.h"
#include "models/layer_runner.h"
#include "ops/ops.h"
#include "parallel/recompute.h"
#include "tensor/noise.h"
#include "tests/folder.h"
#include "tests/models/golden_batch.h"
#include "tests/refusal.h"

namespace apus {
namespace {

using golden::Case;
using golden::Packed;
using test::expect_says;
using test::refusal;

// A small model, and a batch of sequences for it.
struct Small {
  Small()
      : c("qwen2"),
        p(golden::unpad(c, "right")),
        inputs(golden::ids_tensor(p.flat, golden::device())),
        model(load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()})) {}
  Step step() const { return packed_step(p.lengths, golden::device()); }
  Case c;
  Packed p;
  Inputs inputs;
  std::unique_ptr<Model> model;
};

// The layers of one stage. What an earlier stage made takes the embedding's place.
class Stage : public LayerRunner {
 public:
  Stage(LayerRange range, at::Tensor received) : range_(range), received_(std::move(received)) {}
  LayerRange layers(const Model&) const override { return range_; }
  at::Tensor embed(const Model& model, const Inputs& in, const Step& s) override {
    return received_.defined() ? received_ : LayerRunner::embed(model, in, s);
  }
  at::Tensor final_norm(const Model& model, const at::Tensor& x_TD) override {
    return range_.end == model.shape().layers ? LayerRunner::final_norm(model, x_TD) : x_TD;
  }

 private:
  LayerRange range_;
  at::Tensor received_;
};

TEST(LayerWalk, StagesMakeWhatOneProcessMakes) {
  const Small small;
  at::NoGradGuard no_grad;
  const int64_t layers = small.model->shape().layers;
  Step whole = small.step(), first = small.step(), second = small.step();
  Stage front({0, 1}, {});
  const at::Tensor between = run_layers(*small.model, small.inputs, first, front);
  Stage back({1, layers}, between);
  EXPECT_TRUE(
      at::equal(run_layers(*small.model, small.inputs, second, back), small.model->forward(small.inputs, whole)));
}

// Counts the runs of layers.
class Counted : public LayerRunner {
 public:
  at::Tensor layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s) override {
    ++runs;
    return LayerRunner::layer(model, i, x_TD, s);
  }
  int64_t runs = 0;
};

TEST(LayerWalk, BothRunsOfARecomputedLayerAreTheInnerRunners) {
  const Small small;
  small.model->visit([](const std::string&, Param& p) {
    if (p.tied.empty()) p.data = p.data.clone().set_requires_grad(true);
  });
  const auto counted = std::make_shared<Counted>();
  at::Tensor hidden;
  {  // the runner that says what is recomputed is gone before the backward pass
    RecomputeRunner once([](int64_t layer) { return layer == 0 ? std::optional(Memo::kNothing) : std::nullopt; },
                         counted);
    Step step = small.step();
    hidden = run_layers(*small.model, small.inputs, step, once);
  }
  const int64_t layers = small.model->shape().layers;
  EXPECT_EQ(counted->runs, layers);
  hidden.sum().backward();
  EXPECT_EQ(counted->runs, layers + 1);
}

TEST(ModelInputs, PositionsAreTheModels) {
  const Small small;
  Step step = small.step();
  const at::Tensor packed = step.position;
  EXPECT_TRUE(at::equal(small.model->positions(small.inputs, step), packed));
  at::NoGradGuard no_grad;
  Step without = step;
  without.position = at::Tensor();
  EXPECT_TRUE(at::equal(small.model->forward(small.inputs, without), small.model->forward(small.inputs, step)));
  EXPECT_TRUE(at::equal(without.position, packed));
  step.begin_q.assign(step.length_q.size(), 0);
  step.begin_q.back() = 7;
  const at::Tensor later = small.model->positions(small.inputs, step) - packed;
  EXPECT_EQ(later[0].item<int64_t>(), 0);
  EXPECT_EQ(later[-1].item<int64_t>(), 7);
}

TEST(ModelInputs, ATextModelRefusesMedia) {
  const Small small;
  Step step = small.step();
  MediaItem image;
  image.digest = "abc", image.begin = 1, image.length = 2;
  const Inputs with_image(small.inputs.id_T, {{}, {image}});
  expect_says(refusal(Fault::Usage, [&] { small.model->forward(with_image, step); }), "reads text only");
}

// A checkpoint as HuggingFace's ...ForSequenceClassification saves it: the backbone, and score.weight.
TEST(ScalarHead, LoadsAndScoresEveryToken) {
  const Small small;
  const auto dir = small.c.dir / "checkpoint";
  Json config = read_model_config(dir);
  config["architectures"] = {"Qwen2ForSequenceClassification"};
  config["id2label"] = {{"0", "good"}, {"1", "bad"}};
  const auto model = make_model(config, Head::Scalar);
  EXPECT_EQ(model->head_name(), "score");

  const at::Tensor score = normal_noise({2, model->shape().hidden}, 0, 1, 3);
  std::vector<std::pair<std::string, at::Tensor>> tensors{{"score.weight", score}};
  const TensorFolder words(dir);
  for (const auto& name : words.names())
    if (name != "lm_head.weight") tensors.emplace_back(name, words.tensor(name));
  const test::Folder folder;
  write_safetensors(folder.path / "model.safetensors", tensors);
  load_weights(*model, TensorFolder(folder.path), {.dtype = at::kFloat, .device = golden::device()});

  at::NoGradGuard no_grad;
  Step step = small.step(), other = small.step();
  const at::Tensor scores = model->scores(model->forward(small.inputs, step), step);
  EXPECT_EQ(scores.sizes(), (std::vector<int64_t>{static_cast<int64_t>(small.p.flat.size()), 2}));
  const at::Tensor hidden = small.model->forward(small.inputs, other);
  EXPECT_LT((scores - at::linear(hidden, score.to(golden::device()))).abs().max().item<double>(), 1e-4);
}

// transformers' own numbers for a reward model: the score at the position that it takes.
TEST(ScalarHead, GivesTheOriginalsScores) {
  const Case c("heads_qwen2");
  const auto dir = c.dir / "checkpoint_reward";
  const auto model = make_model(read_model_config(dir), Head::Scalar);
  load_weights(*model, TensorFolder(dir), {.dtype = at::kFloat, .device = golden::device()});
  at::NoGradGuard no_grad;
  for (const std::string side : {"left", "right"}) {
    const Packed p = golden::unpad(c, "reward/" + side);
    Step step = packed_step(p.lengths, golden::device());
    const at::Tensor hidden = model->forward(golden::ids_tensor(p.flat, golden::device()), step);
    const at::Tensor scores = model->scores(hidden, step).to(at::kCPU);
    const at::Tensor expected = c.tensor("reward/" + side + "/logits");
    const auto& used = c.json.at("heads").at("reward").at(side).at("used_positions");
    const int64_t width = c.tensor("reward/" + side + "/input_ids").size(1);
    for (size_t row = 0; row < used.size(); ++row) {
      const int64_t place = static_cast<int64_t>(row) * width + used[row].get<int64_t>();
      const auto token = std::find(p.place.begin(), p.place.end(), place) - p.place.begin();
      ASSERT_LT(token, std::ssize(p.place)) << side << " row " << row;
      EXPECT_LT((scores[token] - expected[static_cast<int64_t>(row)]).abs().max().item<double>(), 3e-4)
          << side << " row " << row;
    }
  }
}

TEST(ScalarHead, IsNotTakenForOneOfWords) {
  const Small small;
  Json config = read_model_config(small.c.dir / "checkpoint");
  const auto model = make_model(config, Head::Scalar);
  std::vector<int64_t> shape;
  model->visit([&](const std::string& name, Param& p) {
    if (name == "score.weight") shape = p.full;
    EXPECT_NE(name, "lm_head.weight");
  });
  EXPECT_EQ(shape, (std::vector<int64_t>{1, model->shape().hidden}));  // a file that names no labels: one reward
  Step step = small.step();
  expect_says(refusal(Fault::Bug, [&] { model->head_factors({}, step); }), "gives scores");
  expect_says(refusal(Fault::Bug, [&] { small.model->scores({}, step); }), "logits of words");
  config["num_labels"] = 0;
  expect_says(refusal(Fault::Model, [&] { make_model(config, Head::Scalar); }), "num_labels is 0");
  config["architectures"] = {"Qwen2ForSequenceClassification"};
  expect_says(refusal(Fault::Model, [&] { make_model(config); }), "Qwen2ForSequenceClassification");
}

}  // namespace
}  // namespace apus
