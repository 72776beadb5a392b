// SPDX-License-Identifier: Apache-2.0
// Prompts from messages, what ends a turn, and how a checkpoint wants to be sampled.
#include "engine/answer/chat.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/assets.h"
#include "base/files.h"
#include "engine/answer/generation_config.h"
#include "tests/folder.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

const char* const kThinkingTemplate =
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking "
    "%}<no>{% endif %}{% endif %}";

class ChatTest : public ::testing::Test {
 protected:
  Chat chat(ChatSpec spec) const { return Chat(dir, tokenizer, std::move(spec)); }
  static Json messages(const char* text) { return Json::parse(text); }

  const test::Folder folder;
  const fs::path& dir = folder.path;
  std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::from_json(asset("tokenizer/tokenizer.json"));
};

TEST_F(ChatTest, PromptsAndWhatEndsATurn) {
  const Chat c = chat({.chat_template = kThinkingTemplate});
  const Json m = messages(R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(c.text({.messages = &m}), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(c.prompt({.messages = &m}), tokenizer->encode(c.text({.messages = &m})));
  EXPECT_EQ(c.turn_ends(), std::vector<int32_t>{*tokenizer->id("<|im_end|>")});
  const Json talk = messages(R"([{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}])");
  EXPECT_EQ(c.text({.messages = &talk, .whole = true}),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nho<|im_end|>\n");
  EXPECT_EQ(c.text({.messages = &talk, .continue_final_message = true}),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nho");
}

TEST_F(ChatTest, SystemPrefixAndKwargs) {
  const Chat c = chat(
      {.chat_template = kThinkingTemplate, .system = "be brief", .enable_thinking = false, .response_prefix = "Well,"});
  const Json m = messages(R"([{"role":"user","content":"hi"}])"),
             own = messages(R"([{"role":"system","content":"mine"},{"role":"user","content":"hi"}])");
  EXPECT_EQ(c.text({.messages = &m}),
            "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<no>Well,");
  EXPECT_TRUE(c.text({.messages = &own}).starts_with("<|im_start|>system\nmine"));
  const Json thinks = {{"enable_thinking", true}};
  EXPECT_TRUE(c.text({.messages = &m, .kwargs = &thinks}).ends_with("assistant\nWell,")) << "the request's kwargs win";
  const Json wrong = "enable_thinking";
  EXPECT_THROW(c.text({.messages = &m, .kwargs = &wrong}), Error);
}

TEST_F(ChatTest, WithoutATemplate) {
  const Chat plain = chat({.use_chat_template = false});
  const Json m =
      messages(R"([{"role":"user","content":"one "},{"role":"user","content":[{"type":"text","text":"two"}]}])");
  EXPECT_EQ(plain.text({.messages = &m}), "one two");
  EXPECT_TRUE(plain.turn_ends().empty());
  EXPECT_EQ(chat({}).text({.messages = &m}).substr(0, 12), "<|im_start|>") << "the tokenizer knows ChatML";
}

TEST_F(ChatTest, LongPrompts) {
  const Json m = messages(R"([{"role":"user","content":"one two three four five six seven"}])");
  const auto all = chat({.use_chat_template = false}).prompt({.messages = &m});
  ASSERT_GT(all.size(), 4u);
  EXPECT_THROW(chat({.use_chat_template = false, .max_length = 4}).prompt({.messages = &m}), Error);
  EXPECT_EQ(chat({.use_chat_template = false, .max_length = 4, .truncation_strategy = "left"}).prompt({.messages = &m}),
            std::vector<int32_t>(all.end() - 4, all.end()));
  EXPECT_EQ(
      chat({.use_chat_template = false, .max_length = 4, .truncation_strategy = "right"}).prompt({.messages = &m}),
      std::vector<int32_t>(all.begin(), all.begin() + 4));
}

TEST_F(ChatTest, BadMessages) {
  const Chat c = chat({.chat_template = kThinkingTemplate});
  for (const char* text : {"[]", "{}", "[1]", R"([{"content":"x"}])", R"([{"role":1,"content":"x"}])"}) {
    const Json m = messages(text);
    EXPECT_THROW(c.prompt({.messages = &m}), Error) << text;
  }
  EXPECT_THROW(c.prompt({}), Error);
}

class GenerationConfigTest : public ChatTest {
 protected:
  GenerationConfig read(const char* generation, const char* config) const {
    if (generation) write_file_atomic(dir / "generation_config.json", generation);
    write_file_atomic(dir / "config.json", config);
    return read_generation_config(dir);
  }
};

TEST_F(GenerationConfigTest, TokensThatNoAnswerHas) {
  const SamplingWishes wishes = read(R"({"suppress_tokens": [1, 2], "begin_suppress_tokens": [3]})", "{}").wishes;
  const Sampling s = resolve({}, wishes);
  EXPECT_EQ(s.never, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(s.never_first, (std::vector<int32_t>{3}));
  EXPECT_TRUE(resolve({}, read(R"({"suppress_tokens": null})", "{}").wishes).never.empty());
}

TEST_F(GenerationConfigTest, NamesWhatIsNotFollowed) {
  const auto g = read(
      R"({"num_beams": 4, "length_penalty": 1.0, "sequence_bias": [1, 2], "bad_words_ids": [], "top_k": 5, "max_time": null})",
      "{}");
  EXPECT_EQ(g.not_followed, (std::vector<std::string>{"num_beams 4", "sequence_bias [1,2]"}));
  EXPECT_TRUE(read(R"({"num_beams": 1, "typical_p": 1.0, "transformers_version": "4.51"})", "{}").not_followed.empty());
}

TEST_F(GenerationConfigTest, WhatItSays) {
  const auto g = read(
      R"({"do_sample": true, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.1, "eos_token_id": [5, 6], "min_p": null})",
      R"({"eos_token_id": 9})");
  EXPECT_EQ(g.eos, (std::vector<int32_t>{5, 6}));
  const Sampling s = resolve({}, g.wishes);
  EXPECT_EQ(s.temperature, 0.7);
  EXPECT_EQ(s.top_k, 20);
  EXPECT_EQ(s.top_p, 0.8);
  EXPECT_EQ(s.min_p, 0);
  EXPECT_EQ(s.repetition_penalty, 1.1);
  const Sampling own = resolve({.temperature = 0, .top_k = -1}, g.wishes);
  EXPECT_EQ(own.temperature, 0);
  EXPECT_EQ(own.top_k, 0);
  EXPECT_EQ(own.top_p, 0.8);
}

TEST_F(GenerationConfigTest, EveryFieldThatACheckpointMaySayIsRead) {
  each_sampling_field([&](const auto& field) {
    const std::string text = Json{{field.name, field.least}}.dump();
    const auto wish = read(text.c_str(), "{}").wishes.*field.wish;
    const bool off = std::string(field.name) == "top_p";  // 0 is written by some for "off"
    EXPECT_EQ(wish.has_value(), field.of_checkpoints && !off) << field.name;
    const std::string beyond = Json{{field.name, static_cast<double>(field.least) - 1}}.dump();
    if (field.of_checkpoints) EXPECT_THROW(read(beyond.c_str(), "{}"), Error) << field.name;
  });
}

TEST(SamplingWishes, WhatIsLeftOpenComesFromTheNext) {
  const SamplingWishes both = with_fallback({.temperature = 0.5, .top_k = 3}, {.temperature = 1, .min_p = 0.1});
  EXPECT_EQ(both.temperature, 0.5);
  EXPECT_EQ(both.top_k, 3);
  EXPECT_EQ(both.min_p, 0.1);
  EXPECT_EQ(both.top_p, std::nullopt);
  EXPECT_EQ(resolve({}, {.max_new_tokens = 5}).max_new_tokens, INT32_MAX) << "a checkpoint does not limit answers";
  const Sampling likeliest = resolve({.temperature = 0.5, .top_p = 0}, {});
  EXPECT_EQ(likeliest.temperature, 0) << "nothing but the likeliest";
  EXPECT_EQ(likeliest.top_p, 1);
}

TEST_F(GenerationConfigTest, GreedyUnlessSomeoneSaysOtherwise) {
  const auto g = read(nullptr, R"({"text_config": {"eos_token_id": 9}})");
  EXPECT_EQ(g.eos, std::vector<int32_t>{9});
  EXPECT_EQ(resolve({}, g.wishes).temperature, 0);
  EXPECT_EQ(resolve({.temperature = 0.5}, g.wishes).temperature, 0.5);
  EXPECT_EQ(resolve({.do_sample = true}, g.wishes).temperature, 1);
  EXPECT_EQ(resolve({}, read(R"({"do_sample": false, "temperature": 0.6})", "{}").wishes).temperature, 0);
}

TEST_F(GenerationConfigTest, NonsenseIsNamed) {
  for (const char* text : {"[]", R"({"temperature": -1})", R"({"temperature": "hot"})", R"({"top_k": 1.5})",
                           R"({"eos_token_id": "x"})", R"({"eos_token_id": [-1]})", R"({"do_sample": 3})", "{"})
    EXPECT_THROW(read(text, "{}"), Error) << text;
}

}  // namespace
}  // namespace apus
