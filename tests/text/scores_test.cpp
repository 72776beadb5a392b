// SPDX-License-Identifier: Apache-2.0
// What a classifier's numbers mean, the words a reranker is asked with, and where plain texts end.
#include "text/scores.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/assets.h"
#include "base/error.h"
#include "tests/paths.h"
#include "text/ended_text.h"
#include "text/rerank_prompt.h"

namespace apus {
namespace {

TEST(Scores, AreLabelsByTheirKind) {
  const std::vector<float> logits = {1, 3, -1};
  const LabelledText one = labelled(logits, "single_label_classification");
  EXPECT_EQ(one.label, 1);
  EXPECT_NEAR(one.probabilities[1], std::exp(3) / (std::exp(1) + std::exp(3) + std::exp(-1)), 1e-9);
  const LabelledText several = labelled(logits, "multi_label_classification");
  EXPECT_EQ(several.label, Json({0, 1}));
  EXPECT_NEAR(several.probabilities[2], 1 / (1 + std::exp(1)), 1e-9);
  EXPECT_EQ(labelled({2.5f}, "regression").label, 2.5);
  EXPECT_EQ(labelled({2.5f, 1}, "regression").label, Json({2.5, 1.0}));
  EXPECT_TRUE(labelled({2.5f}, "regression").probabilities.empty());
  EXPECT_NEAR(sigmoid(-800), 0, 1e-12);
  EXPECT_NEAR(sigmoid(800), 1, 1e-12);
}

TEST(Scores, LogprobsAreOfTheChosenAndTheLikest) {
  const std::vector<float> logits = {1, 3, -1};
  const char* const single = "single_label_classification";
  const Json a = label_logprobs(logits, labelled(logits, single), single, 2)["content"][0];
  EXPECT_EQ(a["index"], 1);
  const double sum = std::exp(1) + std::exp(3) + std::exp(-1);
  EXPECT_NEAR(a["logprobs"].get<double>(), 3 - std::log(sum), 1e-6);
  ASSERT_EQ(a["top_logprobs"].size(), 2u);
  EXPECT_EQ(a["top_logprobs"][1]["index"], 0);
  const char* const multi = "multi_label_classification";
  const Json b = label_logprobs(logits, labelled(logits, multi), multi, 0)["content"][0];
  ASSERT_EQ(b["logprobs"].size(), 2u);
  EXPECT_NEAR(b["logprobs"][0].get<double>(), -std::log1p(std::exp(-1)), 1e-6);
}

TEST(RerankPrompt, IsThatOfQwen3Reranker) {
  const Json messages = rerank_messages("q", "d", "", {});
  EXPECT_EQ(
      messages[0]["content"],
      "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the "
      "answer can only be \"yes\" or \"no\".");
  EXPECT_EQ(messages[1]["content"],
            "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n<Query>: "
            "q\n<Document>: d");
  const auto tokenizer = Tokenizer::from_json(asset("tokenizer/tokenizer.json"));
  EXPECT_THROW(token_of_word(*tokenizer, "two words of many tokens"), Error);
  EXPECT_EQ(token_of_word(*tokenizer, "a"), tokenizer->encode("a")[0]);
}

TEST(EndedText, JoinsTheTextsOfAConversation) {
  EXPECT_EQ(
      joined_texts(Json::parse(R"([{"role": "system", "content": "Find"}, {"role": "user", "content": "this"}])")),
      "Find this");
  const auto plain = Tokenizer::from_json(asset("tokenizer/tokenizer.json"));  // names no end mark
  EXPECT_EQ(ended_text(*plain, "Hello"), plain->encode("Hello", true));
  const auto island = Tokenizer::load(test::source_dir() / "examples/island");
  const auto ids = ended_text(*island, "dog");
  EXPECT_EQ(ids.back(), *island->eos());
  EXPECT_EQ(ended_text(*island, "dog<|im_end|>"), ids);  // not twice
}

}  // namespace
}  // namespace apus
