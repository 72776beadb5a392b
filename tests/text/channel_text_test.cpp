// SPDX-License-Identifier: Apache-2.0
// Harmony's channels as text with <think>, and thoughts as the field that its template takes.
#include "text/channel_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/text/text_golden.h"
#include "text/chat_template.h"

namespace apus {
namespace {

// In pieces of every length: what is shown does not depend on them.
void expect_channels(const std::string& said, const std::string& text, const Json& tools = Json()) {
  for (size_t step = 1; step <= said.size(); ++step) {
    ChannelText channels(tools);
    std::string all;
    for (size_t at = 0; at < said.size(); at += step) all += channels.feed(said.substr(at, step));
    EXPECT_EQ(all + channels.finish(), text) << "in steps of " << step;
  }
}

TEST(ChannelText, ReadsAsThoughtsAndAnswer) {
  expect_channels("<|channel|>final<|message|>Good day.<|return|>", "Good day.");
  expect_channels("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Four.",
                  "<think>\nHm.\n</think>\n\nFour.");
  expect_channels("<|channel|>analysis<|message|>cut o", "<think>\ncut o");
  expect_channels("plain", "plain");
}

TEST(ChannelText, WritesCalls) {
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
  const std::string call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>";
  const std::string written = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  expect_channels(call, written, tools);
  expect_channels("<|channel|>analysis<|message|>Look.<|end|><|start|>assistant" + call,
                  "<think>\nLook.\n</think>\n\n\n" + written, tools);
  expect_channels(call, "{\"a\": 1}");  // nothing can be called
}

TEST(ChannelText, ThoughtsBecomeAField) {
  const Json messages = Json::parse(
      R"([{"role":"user","content":"<think>q</think>"},
          {"role":"assistant","content":"<think>\na\n</think>\n\nb"},
          {"role":"assistant","reasoning_content":"c","content":"d"},
          {"role":"assistant","thinking":"e","reasoning_content":"f","content":"g"},
          {"role":"assistant","reasoning_content":"h","content":"i","tool_calls":[{}]},
          {"role":"assistant","reasoning_content":"j","content":"","tool_calls":[{}]},
          {"role":"assistant","content":"k <think>l</think>"}])");
  const Json out = with_thinking(messages);
  EXPECT_EQ(out[0], messages[0]);
  EXPECT_EQ(out[1]["thinking"], "a");
  EXPECT_EQ(out[1]["content"], "b");
  EXPECT_EQ(out[2]["thinking"], "c");
  EXPECT_EQ(out[3]["thinking"], "e");
  EXPECT_FALSE(out[4].contains("thinking"));
  EXPECT_EQ(out[5]["thinking"], "j");
  EXPECT_EQ(out[6], messages[6]);
}

TEST(ChannelText, TheRealTemplateShowsThoughtsBeforeACall) {
  const auto root = golden_text::shared();
  if (!root) GTEST_SKIP() << "real chat templates are not part of the repository; APUS_GOLDEN names their folder";
  const auto gptoss = ChatTemplate::from_text(read_file(*root / "templates/gptoss.jinja"), "gptoss");
  const Json messages = with_thinking(Json::parse(
      R"([{"role":"user","content":"q"},
          {"role":"assistant","reasoning_content":"I look it up.","tool_calls":[{"type":"function","function":{"name":"f","arguments":{}}}]},
          {"role":"tool","content":"1"}])"));
  ChatInput input;
  input.messages = &messages;
  input.add_generation_prompt = true;
  EXPECT_NE(gptoss.render(input).text.find("<|channel|>analysis<|message|>I look it up.<|end|>"), std::string::npos);
}

}  // namespace
}  // namespace apus
