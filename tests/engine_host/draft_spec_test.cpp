// SPDX-License-Identifier: Apache-2.0
// Guesses at an answer: what is looked up in the text before, and how a command line asks for it.
#include "engine/answer/draft_spec.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/options.h"
#include "engine/answer/guess_length.h"
#include "tests/refusal.h"

namespace apus {
namespace {

using Ids = std::vector<int32_t>;

TEST(LookUp, FindsWhatFollowedTheLastTokensBefore) {
  const Ids text = {7, 1, 2, 3, 4, 5, 1, 2, 9, 8, 1, 2};
  EXPECT_EQ(look_up(text, {.longest = 2}, 3), (Ids{9, 8, 1})) << "the latest place";
  EXPECT_EQ(look_up(text, {.longest = 2}, 0), Ids());
  EXPECT_EQ(look_up(Ids{7, 8, 5, 6, 9, 8, 4, 5, 6}, {.longest = 3}, 2), (Ids{9, 8})) << "two tokens where no three fit";
  EXPECT_EQ(look_up(Ids{7, 8, 5, 6, 9, 8}, {.longest = 3}, 2), (Ids{5, 6})) << "one where no two fit";
  EXPECT_EQ(look_up(Ids{7, 8, 5, 6, 9, 8}, {.longest = 3, .shortest = 2}, 2), Ids());
  EXPECT_EQ(look_up(Ids{1, 2, 3}, {}, 4), Ids());
  EXPECT_EQ(look_up(Ids{1}, {}, 4), Ids());
  EXPECT_EQ(look_up(Ids(), {}, 4), Ids());
}

TEST(LookUp, GoesOnInATextThatRepeats) {
  EXPECT_EQ(look_up(Ids{4, 4}, {}, 3), (Ids{4, 4, 4}));
  EXPECT_EQ(look_up(Ids{1, 2, 3, 1, 2, 3, 1}, {}, 7), (Ids{2, 3, 1, 2, 3, 1, 2}));
}

DraftSpec said(const std::vector<std::string>& words) {
  DraftOptions options;
  OptionTable table = OptionTable::of(options);
  table.parse(words);
  return options.spec();
}

TEST(DraftOptions, SayTheSameInFlagsAndInJson) {
  EXPECT_EQ(said({}).tokens, 0);
  const DraftSpec flags = said({"--num_speculative_tokens", "6", "--speculative_ngram", "5"});
  const DraftSpec json = said({"--vllm_speculative_config",
                               "{\"method\": \"ngram\", \"num_speculative_tokens\": 6, \"prompt_lookup_max\": 5}"});
  for (const DraftSpec& s : {flags, json}) {
    EXPECT_EQ(s.tokens, 6);
    EXPECT_EQ(s.longest, 5);
    EXPECT_EQ(s.model, "");
  }
  EXPECT_EQ(said({"--speculative_ngram", "2"}).tokens, 4);
  const DraftSpec model = said({"--speculative_config",
                                "{\"model\": \"small\", \"num_speculative_tokens\": 3, "
                                "\"disable_by_batch_size\": 2}"});
  EXPECT_EQ(model.model, "small");
  EXPECT_EQ(model.tokens, 3);
  EXPECT_EQ(model.max_sequences, 2);
  EXPECT_EQ(said({"--draft_model", "small"}).model, "small");
}

TEST(DraftOptions, SayWhoGuesses) {
  const auto by = [](const std::string& config) { return said({"--speculative_config", config}); };
  EXPECT_EQ(by("{\"method\": \"ngram\"}").by, DraftSpec::By::Text);
  EXPECT_EQ(by("{\"model\": \"small\"}").by, DraftSpec::By::Model);
  EXPECT_EQ(said({"--draft_model", "small"}).by, DraftSpec::By::Model);
  for (const char* method : {"mtp", "deepseek_mtp", "glm4_moe_mtp", "qwen3_next_mtp", "mimo_mtp"}) {
    EXPECT_EQ(by(str("{\"method\": \"", method, "\"}")).by, DraftSpec::By::Head);
    EXPECT_EQ(by(str("{\"method\": \"", method, "\"}")).tokens, 1);
    EXPECT_EQ(by(str("{\"method\": \"", method, "\", \"num_speculative_tokens\": 2}")).tokens, 2);
  }
}

TEST(DraftOptions, SayWhatElseGuesses) {
  const DraftSpec eagle = said({"--speculative_config", "{\"method\": \"eagle3\", \"model\": \"head\"}"});
  EXPECT_EQ(eagle.by, DraftSpec::By::Eagle);
  EXPECT_EQ(eagle.model, "head");
  const DraftSpec self = said({"--speculative_config", "{\"method\": \"self\", \"skip_layers\": [6, 2, 6]}"});
  EXPECT_EQ(self.by, DraftSpec::By::Self);
  EXPECT_EQ(self.skipped, (std::vector<int64_t>{2, 6}));
}

TEST(DraftOptions, SayWhatCannotBe) {
  const auto refusal = [](const std::vector<std::string>& words) {
    return test::refusal(Fault::Usage, [&] { said(words); });
  };
  const auto config = [&](const std::string& json) { return refusal({"--speculative_config", json}); };
  test::expect_says(config("{\"method\": \"seer\"}"), "the method \"seer\" is not known");
  test::expect_says(config("{\"num_speculative_tokens\": 2}"), "\"model\" is needed");
  test::expect_says(config("{\"method\": \"mtp\", \"model\": \"x\"}"), "leave \"model\" out");
  test::expect_says(config("{\"method\": \"eagle3\"}"), "\"model\" is needed");
  test::expect_says(config("{\"method\": \"self\"}"), "wants \"skip_layers\"");
  test::expect_says(config("{\"method\": \"self\", \"skip_layers\": [-1]}"), "wants \"skip_layers\"");
  test::expect_says(config("{\"method\": \"mtp\", \"skip_layers\": [1]}"), "is of {\"method\": \"self\"}");
  test::expect_says(config("{\"method\": \"ngram\", \"num_speculative_tokens\": 0}"), "from 1 to 32");
  test::expect_says(config("{\"method\": \"ngram\", \"tokens\": 3}"), "\"tokens\" is not known here");
  test::expect_says(config("{\"method\": \"ngram\", \"prompt_lookup_min\": 4}"), "is above");
  test::expect_says(refusal({"--draft_model", "x", "--speculative_ngram", "2"}), "two ways to guess");
  test::expect_says(refusal({"--draft_model", "x", "--speculative_config", "{\"method\": \"ngram\"}"}),
                    "one or the others");
  test::expect_says(refusal({"--speculative_max_sequences", "3"}), "nothing to limit");
}

TEST(DraftOptions, SayWhatSglangSays) {
  DraftOptions o;
  o.sglang_speculative_algorithm = "EAGLE", o.sglang_speculative_num_steps = 3;
  EXPECT_EQ(o.spec().by, DraftSpec::By::Head);
  EXPECT_EQ(o.spec().tokens, 3);
  o.sglang_speculative_algorithm = "NGRAM", o.sglang_speculative_num_steps.reset();
  EXPECT_EQ(o.spec().by, DraftSpec::By::Text);
  EXPECT_EQ(o.spec().tokens, 4);
  o.speculative_config = {{"method", "ngram"}};
  EXPECT_THROW(o.spec(), Error);
  o = {};
  o.sglang_speculative_num_steps = 2;
  EXPECT_THROW(o.spec(), Error);
}

TEST(GuessLength, FollowsWhatWasRight) {
  GuessLength length;
  const auto pass = [&](int64_t count, int64_t right) {
    length.guessed(count);
    for (int64_t i = 0; i <= count; ++i) length.right(i < right);
    return length.next(8);
  };
  EXPECT_EQ(length.next(8), 8) << "the most, as long as nothing is known";
  EXPECT_EQ(pass(8, 5), 7);
  EXPECT_EQ(pass(7, 0), 6);
  EXPECT_EQ(pass(0, 0), 6) << "nothing was guessed, so nothing is learnt";
  EXPECT_EQ(pass(2, 2), 8) << "the text had no more";
  for (int i = 0; i < 20; ++i) pass(1, 0);
  EXPECT_EQ(pass(1, 0), 1) << "one is always tried";
  EXPECT_EQ(pass(1, 1), 3);
  EXPECT_EQ(length.next(0), 0) << "none is wanted";
}

}  // namespace
}  // namespace apus
