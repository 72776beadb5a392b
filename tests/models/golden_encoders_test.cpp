// SPDX-License-Identifier: Apache-2.0
// Every encoder against transformers: states, vectors, labels, gradients; packed as one by one.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "checkpoint/weights.h"
#include "models/pooling.h"
#include "models/spec/family.h"
#include "models/spec/score_head.h"
#include "plan/model_facts.h"
#include "tests/golden.h"
#include "tests/refusal.h"

namespace apus {
namespace {

using golden::Case;

double off(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kCPU) - b.to(at::kCPU)).abs().max().item<double>();
}

std::vector<std::string> encoders() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden::models())) {
    const auto config = entry.path() / "checkpoint/config.json";
    if (std::filesystem::exists(config) && is_encoder(read_model_config(entry.path() / "checkpoint")))
      names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class GoldenEncoder : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Model> open(Head head) const {
    auto model = make_model(read_model_config(c.dir / "checkpoint"), head);
    load_weights(*model, TensorFolder(c.dir / "checkpoint"),
                 {.dtype = at::kFloat, .device = golden::device(), .own = [](const std::string&) { return true; }});
    return model;
  }
  Inputs inputs() const {
    Inputs in(c.tensor("input_ids").to(golden::device()));
    in.second = c.json.at("second").get<std::vector<int32_t>>();
    return in;
  }
  Step step() const { return packed_step(lengths, golden::device()); }
  void expect_gradients(Model& model, const std::string& which, const at::Tensor& loss) const {
    loss.backward();
    std::map<std::string, at::Tensor> known;
    model.visit([&](const std::string& name, Param& p) {
      if (p.data.grad().defined()) known[model.disk_form().disk_name(name)] = p.data.grad().to(at::kCPU);
    });
    const Json& norms = c.json.at("grad").at(which);
    EXPECT_EQ(known.size(), norms.size()) << which;
    double largest = 0;
    for (const auto& [name, norm] : norms.items()) largest = std::max(largest, norm.get<double>());
    for (const auto& [name, norm] : norms.items()) {
      ASSERT_TRUE(known.count(name)) << name;
      const double floor = std::max(norm.get<double>(), 1e-4 * largest);
      EXPECT_LT(std::abs(known[name].norm().item<double>() - norm.get<double>()) / floor, 1e-3) << which << " " << name;
      if (const std::string full = str("grad/", which, "/", name); c.has(full))
        EXPECT_LT((known[name] - c.tensor(full)).norm().item<double>() / floor, 1e-3) << full;
    }
  }

  const Case c{GetParam()};
  const std::vector<int32_t> lengths = c.json.at("lengths").get<std::vector<int32_t>>();
};

TEST_P(GoldenEncoder, StatesAndVectors) {
  const at::NoGradGuard no_grad;
  const auto model = open(Head::None);
  Step s = step();
  const Inputs in = inputs();
  const at::Tensor hidden_TD = model->forward(in, s);
  EXPECT_LT(off(hidden_TD, c.tensor("hidden")), 1e-5);
  Step begun = step();
  model->begin(begun);
  at::Tensor x_TD = model->embed(in, begun);
  for (int64_t i = 0; i < model->shape().layers; ++i) {
    EXPECT_LT(off(x_TD, c.tensor(str("hidden_states.", i))), 1e-5) << "input of layer " << i;
    x_TD = model->layer(i, x_TD, begun);
  }
  const std::map<std::string, Pooling> ways = {{"cls", Pooling::First},     {"last", Pooling::Last},
                                               {"mean", Pooling::Mean},     {"max", Pooling::Max},
                                               {"sqrt", Pooling::MeanSqrt}, {"weighted", Pooling::WeightedMean}};
  for (const auto& [name, way] : ways)
    EXPECT_LT(off(pooled(hidden_TD, s, way), c.tensor("vectors/" + name)), 1e-5) << name;
}

// To the bit on a processor; on others within the rounding of their products.
TEST_P(GoldenEncoder, EachTextIsWhatItIsAlone) {
  const double tolerance = golden::device().is_cpu() ? 0 : 1e-5;
  const at::NoGradGuard no_grad;
  const auto model = open(Head::None);
  Step s = step();
  const Inputs in = inputs();
  const at::Tensor together_TD = model->forward(in, s);
  int64_t begin = 0;
  for (size_t i = 0; i < lengths.size(); begin += lengths[i++]) {
    Step own = packed_step({lengths[i]}, golden::device());
    Inputs text(in.id_T.narrow(0, begin, lengths[i]));
    text.second = {in.second[i]};
    EXPECT_LE(off(model->forward(text, own), together_TD.narrow(0, begin, lengths[i])), tolerance) << "text " << i;
  }
}

TEST_P(GoldenEncoder, LabelsAndGradients) {
  for (const Head head : {Head::Scalar, Head::None}) {
    const auto model = open(head);
    model->visit([](const std::string&, Param& p) { p.data.set_requires_grad(true); });
    Step s = step();
    const Inputs in = inputs();
    const at::Tensor hidden_TD = model->forward(in, s);
    if (head == Head::None) {
      expect_gradients(*model, "states", (hidden_TD * c.tensor("weights").to(golden::device())).sum());
      continue;
    }
    const at::Tensor logit_SN = text_scores(*model, in.id_T, hidden_TD, s);
    EXPECT_LT(off(logit_SN, c.tensor("logits")), 2e-5);
    const auto labels = c.json.at("labels").get<std::vector<int64_t>>();
    const at::Tensor loss = at::cross_entropy_loss(logit_SN, at::tensor(labels).to(golden::device()));
    EXPECT_NEAR(loss.item<double>(), c.json.at("loss").get<double>(), 1e-5);
    expect_gradients(*model, "labels", loss);
  }
}

TEST_P(GoldenEncoder, GivesNoWords) {
  const Json config = read_model_config(c.dir / "checkpoint");
  Json plain = config;
  plain["architectures"] = Json::array();
  test::expect_says(test::refusal(Fault::Model, [&] { make_model(plain); }), "is an encoder");
  EXPECT_TRUE(model_facts(config).encoder);
}

INSTANTIATE_TEST_SUITE_P(Encoders, GoldenEncoder, ::testing::ValuesIn(encoders()),
                         [](const auto& info) { return info.param; });

// Heads that label each token, by transformers: of RoBERTa without the layers that its labels of texts have.
TEST(TokenLabels, AreTransformers) {
  const at::NoGradGuard no_grad;
  for (const char* name : {"bert", "roberta", "modernbert"}) {
    const auto dir = test::source_dir() / "tests/data/words" / name;
    const auto golden = SafetensorsFile::open(dir / "golden.safetensors");
    const Json config = read_model_config(dir / "checkpoint");
    EXPECT_TRUE(score_head_of(config)->each_token);
    const auto model = make_model(config, Head::Scalar);
    load_weights(*model, TensorFolder(dir / "checkpoint"),
                 {.dtype = at::kFloat, .device = golden::device(), .own = [](const std::string&) { return true; }});
    const at::Tensor lengths = golden->tensor("lengths");
    Step s =
        packed_step({lengths.data_ptr<int64_t>(), lengths.data_ptr<int64_t>() + lengths.numel()}, golden::device());
    const at::Tensor hidden_TD = model->forward(Inputs(golden->tensor("input_ids").to(golden::device())), s);
    EXPECT_LT(off(scores_of_tokens(*model, hidden_TD, s), golden->tensor("logits")), 2e-5) << name;
    int64_t numbers = 0;
    model->visit([&](const std::string&, Param& p) { numbers += p.data.numel(); });
    EXPECT_EQ(model_facts(config).parameters(), numbers) << name;
  }
}

TEST(TokenLabels, NeedAnEncoder) {
  Json config = read_model_config(golden::models() / "qwen2/checkpoint");
  config["architectures"] = Json::array({"Qwen2ForTokenClassification"});
  test::expect_says(test::refusal(Fault::Model, [&] { make_model(config, Head::Scalar); }), "known of encoders alone");
}

}  // namespace
}  // namespace apus
