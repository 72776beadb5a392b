// SPDX-License-Identifier: Apache-2.0
// Tools, calls and results in the forms of --agent_template, through a chat template that knows none of them; and each
// form's calls read back.
#include "text/agent_template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/chat_template.h"

namespace apus {
namespace {

constexpr const char* kBare =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

const Json& agent_tools() {
  static const Json tools = Json::parse(
      R"([{"type": "function", "function": {"name": "weather", "description": "Tells the weather.", "parameters":
      {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}])");
  return tools;
}

Json agent_talk() {
  return Json::parse(R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Rome?"},
    {"role": "assistant", "content": "Let me see.", "tool_calls": [{"type": "function", "function":
      {"name": "weather", "arguments": {"city": "Rome", "days": 2}}}]},
    {"role": "tool", "content": "sun"}])");
}

std::string agent_text(const std::string& name, const Json& messages, bool prompt) {
  ChatTemplate chat = ChatTemplate::from_text(kBare, "bare");
  chat.use_agent(name);
  return chat.render({.messages = &messages, .tools = &agent_tools(), .add_generation_prompt = prompt}).text;
}

TEST(AgentTemplate, WhatIsWrittenIsReadBack) {
  for (const std::string& name : AgentTemplate::names()) {
    const AgentTemplate agent = AgentTemplate::named(name);
    if (agent.of_checkpoint()) continue;
    const Json plain = agent.without_tools(agent_talk(), agent_tools());
    ASSERT_GE(plain.size(), 3u) << name;
    const std::string system = plain[0]["content"];
    EXPECT_TRUE(system.starts_with("Be brief.")) << name;
    EXPECT_NE(system.find("weather"), std::string::npos) << name;
    EXPECT_NE(system.find("Tells the weather."), std::string::npos) << name;
    for (const Json& message : plain) {
      EXPECT_NE(message["role"], "tool") << name;
      EXPECT_FALSE(message.contains("tool_calls")) << name;
    }
    const ChatPieces read =
        parse_chat(plain[2]["content"].get<std::string>(), {.format = agent.format(), .tools = &agent_tools()});
    ASSERT_EQ(read.calls.size(), 1u) << name << ": " << plain[2];
    EXPECT_EQ(read.calls[0].name, "weather") << name;
    EXPECT_EQ(Json::parse(read.calls[0].arguments), Json::parse(R"({"city": "Rome", "days": 2})")) << name;
    EXPECT_TRUE(read.content.starts_with("Let me see.")) << name;
  }
}

TEST(AgentTemplate, ResultsStandWhereTheFormWantsThem) {
  const std::string react = agent_text("react_en", agent_talk(), true);
  EXPECT_TRUE(
      react.ends_with("<|im_start|>assistant\nLet me see.\nAction: weather\n"
                      "Action Input: {\"city\": \"Rome\", \"days\": 2}\nObservation:sun\n"))
      << react;
  const std::string hermes = agent_text("hermes", agent_talk(), true);
  EXPECT_TRUE(
      hermes.ends_with("<|im_start|>user\n<tool_response>\nsun\n</tool_response><|im_end|>\n"
                       "<|im_start|>assistant\n"))
      << hermes;
  Json answered = agent_talk();
  answered.push_back({{"role", "assistant"}, {"content", "Final Answer: sun"}});
  EXPECT_NE(agent_text("react_en", answered, false).find("Observation:sun\nFinal Answer: sun<|im_end|>"),
            std::string::npos);
}

TEST(AgentTemplate, WithoutToolsNothingChanges) {
  const Json messages = Json::parse(R"([{"role": "user", "content": "hi"}])");
  ChatTemplate chat = ChatTemplate::from_text(kBare, "bare");
  const std::string before = chat.render({.messages = &messages}).text;
  chat.use_agent("react_en");
  EXPECT_EQ(chat.render({.messages = &messages}).text, before);
}

// DeepSeek-V3.1's template writes calls and results, and leaves telling of tools to whoever writes the system message.
TEST(AgentTemplate, WhereATemplateTellsNoToolsTheyAreTold) {
  const std::string calls =
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}"
      "<｜tool▁call▁begin｜>{{ c.function.name }}<｜tool▁sep｜>{{ c.function.arguments | tojson }}<｜tool▁call▁end｜>"
      "{% endfor %}{% endfor %}";
  ChatTemplate chat = ChatTemplate::from_text(calls, "calls alone");
  chat.use_agent("");
  EXPECT_TRUE(chat.shows_tools());
  EXPECT_EQ(chat.tool_format(), ToolFormat::DeepSeek);
  const Json messages = agent_talk();
  const std::string told = chat.render({.messages = &messages, .tools = &agent_tools()}).text;
  EXPECT_TRUE(told.starts_with("[system]Be brief.")) << told;
  EXPECT_NE(told.find("Tells the weather."), std::string::npos) << told;
  EXPECT_TRUE(
      told.ends_with("[assistant]Let me see.<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Rome\", "
                     "\"days\": 2}<｜tool▁call▁end｜>[tool]sun"))
      << told;
  EXPECT_EQ(chat.render({.messages = &messages}).text.find("weather.", 0), std::string::npos);
  ChatTemplate telling = ChatTemplate::from_text("{% if tools %}{{ tools | tojson }}{% endif %}" + calls, "tells");
  telling.use_agent("");
  EXPECT_EQ(telling.agent_name(), "");
}

TEST(AgentTemplate, AFormOfOtherModelsIsRefused) {
  ChatTemplate chat = ChatTemplate::from_text(kBare, "bare");
  try {
    chat.use_agent("mistral");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.at.fault, Fault::Usage);
    EXPECT_NE(std::string(e.what()).find("--chat_template"), std::string::npos) << e.what();
  }
  EXPECT_THROW(chat.use_agent("kimi_k3"), Error);
}

}  // namespace
}  // namespace apus
