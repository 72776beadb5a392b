// SPDX-License-Identifier: Apache-2.0
// The engine of texts that are read as a whole: each gets what it gets alone, whoever asks beside it.
#include "engine/numbers_engine.h"

#include <gtest/gtest.h>

#include <future>

#include "checkpoint/weights.h"
#include "models/pooling.h"
#include "tests/golden.h"
#include "tests/refusal.h"

namespace apus {
namespace {

class NumbersOfTexts : public ::testing::Test {
 protected:
  NumbersOfTexts() {
    const auto dir = golden::models() / "bert/checkpoint";
    model = make_model(read_model_config(dir), Head::Scalar);
    load_weights(*model, TensorFolder(dir), {.dtype = at::kFloat, .device = golden::device()});
    int64_t begin = 0;
    const at::Tensor ids = c.tensor("input_ids");
    for (const int64_t length : c.json.at("lengths").get<std::vector<int64_t>>()) {
      std::vector<int32_t> text;
      for (int64_t i = begin; i < begin + length; ++i) text.push_back(ids[i].item<int32_t>());
      texts.push_back(std::move(text)), begin += length;
    }
  }
  std::unique_ptr<NumbersEngine> engine(NumbersEngine::Spec spec) const {
    return std::make_unique<NumbersEngine>(*model, golden::device(), spec,
                                           [](const Model& m, const at::Tensor& id_T, const at::Tensor& x_TD,
                                              const Step& s) { return text_scores(m, id_T, x_TD, s); });
  }
  EngineRequest request(size_t text, std::promise<std::vector<float>>& numbers) const {
    EngineRequest asked;
    asked.prompt = texts[text], asked.second = second[text], asked.embedding = true;
    asked.embedding_sink = [&numbers](const std::vector<float>& all) { numbers.set_value(all); };
    return asked;
  }

  const golden::Case c{"bert"};
  const std::vector<int32_t> second = c.json.at("second").get<std::vector<int32_t>>();
  std::unique_ptr<Model> model;
  std::vector<std::vector<int32_t>> texts;
};

TEST_F(NumbersOfTexts, AreTheOriginalsHoweverManyGoTogether) {
  for (const int64_t step : {1, 20, 4096}) {
    const auto asked = engine({.max_model_len = 40, .max_step_tokens = step});
    std::vector<std::promise<std::vector<float>>> numbers(3 * texts.size());
    for (size_t i = 0; i < numbers.size(); ++i) asked->submit(request(i % texts.size(), numbers[i]));
    const at::Tensor wanted = c.tensor("logits");
    for (size_t i = 0; i < numbers.size(); ++i) {
      const std::vector<float> got = numbers[i].get_future().get();
      ASSERT_EQ(got.size(), 3u);
      for (int64_t n = 0; n < 3; ++n)
        EXPECT_NEAR(got[static_cast<size_t>(n)], wanted[static_cast<int64_t>(i % texts.size())][n].item<float>(), 2e-5);
    }
    EXPECT_EQ(asked->stats().waiting, 0);
    EXPECT_GE(asked->stats().steps, step == 1 ? std::ssize(numbers) : 1);
  }
}

TEST_F(NumbersOfTexts, WhatCannotBeReadIsRefused) {
  const auto asked = engine({.max_model_len = 12, .max_step_tokens = 4096});
  std::promise<std::vector<float>> none;
  test::expect_says(test::refusal(Fault::Usage, [&] { asked->submit(request(0, none)); }), "17 tokens are more than");
  EngineRequest words;
  words.prompt = {5, 6};
  test::expect_says(test::refusal(Fault::Usage, [&] { asked->submit(words); }), "no words");
  EngineRequest unknown = request(1, none);
  unknown.prompt.back() = 160;
  test::expect_says(test::refusal(Fault::Usage, [&] { asked->submit(unknown); }), "outside the model's vocabulary");
  test::expect_says(test::refusal(Fault::Usage, [&] { asked->load_adapter("a", "b"); }), "--adapters");
}

}  // namespace
}  // namespace apus
