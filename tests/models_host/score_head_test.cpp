// SPDX-License-Identifier: Apache-2.0
// Heads of numbers in config.json, as transformers writes them.
#include "models/spec/score_head.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace apus {
namespace {

TEST(ScoreHead, IsReadAsTransformersDoes) {
  const Json causal = Json::parse(R"({"architectures": ["Qwen3ForCausalLM"], "id2label": {"0": "a", "1": "b"}})");
  EXPECT_FALSE(score_head_of(causal));
  const Json plain = Json::parse(R"({"architectures": ["Qwen3ForSequenceClassification"]})");
  EXPECT_EQ(score_head_of(plain)->labels, 2);  // its default, which files leave out
  EXPECT_EQ(score_head_of(plain)->problem_type, "single_label_classification");
  const Json one = Json::parse(
      R"({"architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "LABEL_0"}, "problem_type": null})");
  EXPECT_EQ(score_head_of(one)->labels, 1);
  EXPECT_EQ(score_head_of(one)->problem_type, "regression");
}

TEST(ScoreHead, IsWrittenAsTransformersDoes) {
  const Json causal =
      Json::parse(R"({"architectures": ["Qwen3ForCausalLM"], "eos_token_id": [7, 8], "num_labels": 5})");
  const Json made = with_score_head(causal, {3, "multi_label_classification"});
  EXPECT_EQ(made["architectures"], Json({"Qwen3ForSequenceClassification"}));
  EXPECT_EQ(made["id2label"].size(), 3u);
  EXPECT_EQ(made["label2id"]["LABEL_2"], 2);
  EXPECT_EQ(made["problem_type"], "multi_label_classification");
  EXPECT_EQ(made["pad_token_id"], 7);
  EXPECT_FALSE(made.contains("num_labels"));
  Json named = made;
  named["id2label"]["1"] = "good";
  const Json again = with_score_head(named, {3, "multi_label_classification"});
  EXPECT_EQ(label_name(again, 1), "good");
  EXPECT_EQ(label_name(again, 2), "LABEL_2");
  EXPECT_EQ(label_name(causal, 4), "LABEL_4");
  EXPECT_EQ(with_score_head(named, {2, "regression"})["id2label"]["1"], "LABEL_1");
}

}  // namespace
}  // namespace apus
