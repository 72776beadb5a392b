// SPDX-License-Identifier: Apache-2.0
// Tool calls and reasoning: whole texts, and the same texts fed in pieces of every size.
#include "text/tool_calls.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/text/text_golden.h"

namespace apus {
namespace {

ChatParserOptions with(ToolFormat format) {
  ChatParserOptions options;
  options.format = format;
  return options;
}

std::string shown(const ChatPieces& pieces) {
  std::string out = "C[" + pieces.content + "] R[" + pieces.reasoning + "]";
  for (const ToolCall& call : pieces.calls) out += " " + call.name + "(" + call.arguments + ")";
  return out;
}

// The text in pieces of `size` bytes; checks that calls come in order, name first.
ChatPieces streamed(const std::string& text, const ChatParserOptions& options, size_t size,
                    size_t* argument_deltas = nullptr) {
  ChatParser parser(options);
  ChatPieces out;
  const auto take = [&](const std::vector<ChatDelta>& deltas) {
    for (const ChatDelta& delta : deltas) {
      const auto calls = static_cast<int>(out.calls.size());
      if (delta.kind == ChatDelta::Kind::ToolName) {
        EXPECT_EQ(delta.call, calls);
      }
      if (delta.kind == ChatDelta::Kind::ToolArguments) {
        EXPECT_EQ(delta.call, calls - 1);
        EXPECT_FALSE(delta.text.empty());
        if (argument_deltas) ++*argument_deltas;
      }
      out.add(delta);
    }
  };
  for (size_t at = 0; at < text.size(); at += size) take(parser.feed(std::string_view(text).substr(at, size)));
  take(parser.finish());
  return out;
}

void expect_pieces(const std::string& text, ChatParserOptions options, const std::string& expected) {
  EXPECT_EQ(shown(parse_chat(text, options)), expected) << text;
  for (const size_t size : {1, 2, 3, 7, 1000})
    EXPECT_EQ(shown(streamed(text, options, size)), expected) << text << " by " << size;
}

TEST(ToolCalls, Hermes) {
  const auto options = with(ToolFormat::Hermes);
  expect_pieces(
      "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"x}\"], \"b\": "
      "{}}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>",
      options, "C[Let me see.] R[] f({\"a\": [1, \"x}\"], \"b\": {}}) g({})");
  expect_pieces("<tool_call>{\"arguments\": {\"a\": 1.5e3}, \"name\": \"f\"}</tool_call>", options,
                "C[] R[] f({\"a\": 1.5e3})");
  expect_pieces("<tool_call>{\"name\": \"f\"}</tool_call>", options, "C[] R[] f({})");
  expect_pieces("<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>", options,
                "C[] R[] f({\"a\": 1})");
  expect_pieces("<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>done", options, "C[done] R[] f({})");
  // The end is missing.
  expect_pieces("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}", options, "C[] R[] f({\"a\": 1})");
  expect_pieces(
      "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n<tool_call>{\"name\": \"g\", \"arguments\": "
      "{}}</tool_call>\n\nbye\n",
      options, "C[bye\n] R[] f({}) g({})");
}

TEST(ToolCalls, MalformedCallsStayContent) {
  const auto options = with(ToolFormat::Hermes);
  for (const char* text :
       {"a\n\n<tool_call>nonsense</tool_call>\n", "<tool_call>{\"name\": \"f\", \"arguments\": {bad}}</tool_call>",
        "<tool_call>{\"name\": \"\"}</tool_call>", "<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>[1]</tool_call>", "<tool_call>", "x <tool_cal", "<tool_call>\n{\"name\": \"f\", ", "a < b <",
        "<tool_call>{\"name\": \"\\ud800\"}</tool_call>", "<tool_call>{'name': 'f'}</tool_call>"}) {
    expect_pieces(text, options, "C[" + std::string(text) + "] R[]");
  }
  expect_pieces("<tool_call>no <tool_call>{\"name\": \"f\", \"arguments\": {\"q\": 1}}</tool_call>", options,
                "C[<tool_call>no ] R[] f({\"q\": 1})");
  // A call of which a part was shown cannot be taken back; a whole text's can.
  const std::string late = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1, bad}}</tool_call>";
  EXPECT_EQ(shown(parse_chat(late, options)), "C[" + late + "] R[]");
  EXPECT_EQ(shown(streamed(late, options, 1)), "C[bad}}</tool_call>] R[] f({\"a\": 1, )");
  const std::string cut = "<tool_call>{\"name\": \"f\", \"arguments\": {\"text\": \"abc";
  EXPECT_EQ(shown(parse_chat(cut, options)), "C[" + cut + "] R[]");
  EXPECT_EQ(shown(streamed(cut, options, 4)), "C[] R[] f({\"text\": \"abc)");
}

TEST(ToolCalls, ArgumentsStreamAsTheyGrow) {
  size_t deltas = 0;
  const std::string text =
      "<tool_call>{\"name\": \"write\", \"arguments\": {\"text\": \"" + std::string(500, 'x') + "\"}}</tool_call>";
  streamed(text, with(ToolFormat::Hermes), 10, &deltas);
  EXPECT_GT(deltas, 40u);
}

TEST(ToolCalls, Llama3) {
  const auto options = with(ToolFormat::Llama3);
  expect_pieces("{\"name\": \"f\", \"parameters\": {\"a\": 1}}", options, "C[] R[] f({\"a\": 1})");
  expect_pieces(
      "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {\"b\": \"y\"}}", options,
      "C[] R[] f({}) g({\"b\": \"y\"})");
  expect_pieces("\n{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"a\": true}}", options,
                "C[] R[] f({\"a\": true})");
  expect_pieces("{\"name\": \"Bob\", \"age\": 3}", options, "C[{\"name\": \"Bob\", \"age\": 3}] R[]");
  expect_pieces("Use {\"name\": \"f\", \"parameters\": {}}", options,
                "C[Use {\"name\": \"f\", \"parameters\": {}}] R[]");
  expect_pieces("<|python_tag|>print(1)", options, "C[<|python_tag|>print(1)] R[]");
  expect_pieces("{not json", options, "C[{not json] R[]");
}

TEST(ToolCalls, QwenCoder) {
  auto options = with(ToolFormat::QwenCoder);
  const std::string call =
      "I will look.\n<tool_call>\n<function=search>\n<parameter=query>\n a <b> "
      "\"c\"\nd\n</parameter>\n<parameter=count>\n5\n</parameter>\n<parameter=code>\n007\n</parameter>\n</function>\n</"
      "tool_call>";
  expect_pieces(call, options,
                "C[I will look.] R[] search({\"query\": \" a <b> \\\"c\\\"\\nd\", \"count\": 5, \"code\": \"007\"})");
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "search", "parameters": {"properties":
      {"count": {"type": "string"}, "code": {"type": ["string", "null"]}}}}}])");
  options.tools = &tools;
  expect_pieces(
      call, options,
      "C[I will look.] R[] search({\"query\": \" a <b> \\\"c\\\"\\nd\", \"count\": \"5\", \"code\": \"007\"})");
  expect_pieces("<function=now></function>", options, "C[] R[] now({})");
  expect_pieces(
      "<tool_call><function=f><parameter=x>[1, "
      "2]</parameter></function></tool_call>\n<tool_call><function=g><parameter=y>True</parameter></function></"
      "tool_call>",
      options, "C[] R[] f({\"x\": [1, 2]}) g({\"y\": true})");
  expect_pieces("<tool_call>{\"name\": \"f\"}</tool_call>", options, "C[<tool_call>{\"name\": \"f\"}</tool_call>] R[]");
  expect_pieces("<tool_call><function=f><param", options, "C[<tool_call><function=f><param] R[]");
}

TEST(ToolCalls, DeepSeek) {
  const auto options = with(ToolFormat::DeepSeek);
  expect_pieces(
      "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": "
      "1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
      options, "C[Hm.] R[] f({\"a\": 1}) g({})");
  expect_pieces(
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": "
      "1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><"
      "｜tool▁calls▁end｜>",
      options, "C[] R[] f({\"a\": 1}) g({})");
  const std::string bad = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>oops";
  expect_pieces(bad, options, "C[" + bad + "] R[]");
  expect_pieces("<｜tool▁calls▁begin｜> no", options, "C[<｜tool▁calls▁begin｜> no] R[]");
}

TEST(ToolCalls, Mistral) {
  const auto options = with(ToolFormat::Mistral);
  expect_pieces(
      "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"123456789\"}, {\"name\": \"g\", "
      "\"arguments\": {}}]",
      options, "C[] R[] f({\"a\": 1}) g({})");
  expect_pieces("[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]abc[ARGS]{}", options,
                "C[] R[] f({\"a\": 1}) g({})");
  expect_pieces("Yes.[TOOL_CALLS]f{\"a\": 1}", options, "C[Yes.] R[] f({\"a\": 1})");
  expect_pieces("[TOOL_CALLS] what?", options, "C[[TOOL_CALLS] what?] R[]");
}

TEST(ToolCalls, Reasoning) {
  auto options = with(ToolFormat::Hermes);
  expect_pieces("<think>\nWell,\n\nyes.\n</think>\n\nHello\n", options, "C[Hello\n] R[Well,\n\nyes.]");
  expect_pieces("<think>\n\n</think>\n\nHello", options, "C[Hello] R[]");
  expect_pieces("<think>a</think><tool_call>{\"name\": \"f\", \"arguments\": {\"k\": 1}}</tool_call>", options,
                "C[] R[a] f({\"k\": 1})");
  expect_pieces("<think>a <tool_call>{\"name\": \"f\"}</tool_call>\n</think>b", options,
                "C[b] R[a <tool_call>{\"name\": \"f\"}</tool_call>]");
  expect_pieces("Say <think>x</think>", options, "C[Say <think>x</think>] R[]");
  expect_pieces("<think>never ends", options, "C[] R[never ends]");
  expect_pieces("  \n", options, "C[  \n] R[]");
  options.starts_in_reasoning = true;
  expect_pieces("Well.\n</think>\n\nHello", options, "C[Hello] R[Well.]");
  expect_pieces("<think>\nWell.\n</think>\nHello </think>", options, "C[Hello </think>] R[Well.]");
  options.reasoning = options.starts_in_reasoning = false;
  expect_pieces("<think>\nWell.</think>Hello", options, "C[<think>\nWell.</think>Hello] R[]");
}

TEST(ToolCalls, NothingIsLookedForWithoutAFormat) {
  expect_pieces("<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", ChatParserOptions{},
                "C[<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>] R[]");
}

TEST(ToolCalls, React) {
  const auto options = with(ToolFormat::React);
  expect_pieces("Thought: the weather\nAction: weather\nAction Input: {\"city\": \"Rome\"}\nObservation:", options,
                "C[Thought: the weather] R[] weather({\"city\": \"Rome\"})");
  expect_pieces("Action: a\nAction Input: {}\nAction: b\nAction Input: {\"x\": [1]}\n", options,
                "C[] R[] a({}) b({\"x\": [1]})");
  expect_pieces("Action: a\nnothing else", options, "C[Action: a\nnothing else] R[]");
  expect_pieces("Action: a\nAction Input: nonsense", options, "C[Action: a\nAction Input: nonsense] R[]");
  expect_pieces("✿FUNCTION✿: weather\n✿ARGS✿: {\"city\": \"Rome\"}\n✿RESULT✿:", with(ToolFormat::Flower),
                "C[] R[] weather({\"city\": \"Rome\"})");
}

TEST(ToolCalls, GlmAndSeed) {
  const Json tools = Json::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties":
      {"s": {"type": "string"}, "n": {"type": "integer"}}}}}])");
  auto options = with(ToolFormat::Glm);
  options.tools = &tools;
  expect_pieces(
      "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>12</arg_value>\n<arg_key>n</arg_key>\n"
      "<arg_value>12</arg_value>\n</tool_call>",
      options, "C[] R[] f({\"s\": \"12\", \"n\": 12})");
  expect_pieces("So: <tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value></tool_call>", options,
                "C[So: ] R[] f({\"n\": 1})");
  expect_pieces("<tool_call>f</tool_call>", options, "C[] R[] f({})");
  expect_pieces("<tool_call>f<other>", options, "C[<tool_call>f<other>] R[]");
  options.format = ToolFormat::SeedOss;
  expect_pieces("<seed:tool_call>\n<function=f>\n<parameter=s>12</parameter>\n</function>\n</seed:tool_call>", options,
                "C[] R[] f({\"s\": \"12\"})");
}

TEST(ToolCalls, Kimi) {
  const auto options = with(ToolFormat::Kimi);
  expect_pieces(
      "I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}"
      "<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
      "<|tool_calls_section_end|>",
      options, "C[I look.] R[] f({\"a\": 1}) g({})");
  expect_pieces("<|tool_call_begin|>f<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|>", options,
                "C[] R[] f({\"a\": 1})");
}

TEST(ToolCalls, ObjectsBetweenWords) {
  auto options = with(ToolFormat::ToolList);
  expect_pieces("<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\"}]<|/tool_call|>", options,
                "C[] R[] f({\"a\": 1}) g({})");
  expect_pieces("<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]", options, "C[] R[] f({})");
  expect_pieces("<|tool_call|>[1]", options, "C[<|tool_call|>[1]] R[]");
  options = with(ToolFormat::ToolCalls);
  expect_pieces(
      "<tool_calls>\n{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\", \"arguments\": {}}\n</tool_calls>",
      options, "C[] R[] f({}) g({})");
  options = with(ToolFormat::Plugin);
  expect_pieces("So<|action_start|><|plugin|>\n{\"name\": \"f\", \"parameters\": {\"a\": 1}}<|action_end|>", options,
                "C[So] R[] f({\"a\": 1})");
}

TEST(ToolCalls, HarmonyChannels) {
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
  auto options = with(ToolFormat::Harmony);
  options.tools = &tools;
  expect_pieces("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Four.<|return|>",
                options, "C[Four.] R[Hm.]");
  // The recipient behind the channel, and before it; the end token is not part of the text when it stopped the answer.
  expect_pieces(
      "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
      "<|constrain|>json<|message|>{\"a\": [1, \"<|end\"]}<|call|>",
      options, "C[] R[Look.] f({\"a\": [1, \"<|end\"]})");
  expect_pieces(" to=functions.f<|channel|>commentary json<|message|>{\"a\": 1}", options, "C[] R[] f({\"a\": 1})");
  expect_pieces("<|channel|>commentary to=functions.f<|message|><|call|>", options, "C[] R[] f({})");
  // Words to the user before a call; two thoughts.
  expect_pieces(
      "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant"
      "<|channel|>commentary<|message|>I ask f.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
      "<|message|>{}<|call|>",
      options, "C[I ask f.] R[a\nb] f({})");
  // No call, or none of the tools.
  expect_pieces("<|channel|>commentary to=functions.f<|message|>[1]<|call|>", options, "C[[1]] R[]");
  expect_pieces("<|channel|>commentary to=functions.g<|message|>{}<|call|>", options, "C[{}] R[]");
  expect_pieces("<|channel|>final<|message|>a < b <|", options, "C[a < b <|] R[]");
  expect_pieces("<|channel|>analysis<|message|>cut", options, "C[] R[cut]");
  expect_pieces("<|channel|>fin", options, "C[] R[]");
  // A model that was not taught the form.
  expect_pieces("Plain <b>words</b>.", options, "C[Plain <b>words</b>.] R[]");
  EXPECT_EQ(shown(parse_chat("<|channel|>commentary to=functions.f<|message|>{\"a\": 1", options)), "C[{\"a\": 1] R[]");
  options.reasoning = false;
  expect_pieces("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Four.", options,
                "C[Hm.\nFour.] R[]");
}

TEST(ToolCalls, FormatsHaveNamesAndAreGuessed) {
  for (const ToolFormat format :
       {ToolFormat::None, ToolFormat::Hermes, ToolFormat::Llama3, ToolFormat::QwenCoder, ToolFormat::DeepSeek,
        ToolFormat::Mistral, ToolFormat::SeedOss, ToolFormat::Glm, ToolFormat::React, ToolFormat::Flower,
        ToolFormat::Kimi, ToolFormat::ToolList, ToolFormat::ToolCalls, ToolFormat::Plugin, ToolFormat::Harmony}) {
    EXPECT_EQ(tool_format(tool_format_name(format)), format);
  }
  EXPECT_THROW(tool_format("nope"), Error);
  EXPECT_EQ(guess_tool_format("{{ messages }}"), ToolFormat::None);
  EXPECT_TRUE(opens_reasoning("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(opens_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  const auto root = golden_text::shared();
  if (!root) GTEST_SKIP() << "real chat templates are not part of the repository; APUS_GOLDEN names their folder";
  const std::pair<const char*, ToolFormat> real[] = {{"qwen2_5", ToolFormat::Hermes},
                                                     {"qwen3", ToolFormat::Hermes},
                                                     {"Qwen3-Coder", ToolFormat::QwenCoder},
                                                     {"qwen3_6", ToolFormat::QwenCoder},
                                                     {"deepseekv3", ToolFormat::DeepSeek},
                                                     {"deepseek-ai-DeepSeek-V3.1", ToolFormat::DeepSeek},
                                                     {"mistralai-Mistral-Nemo-Instruct-2407", ToolFormat::Mistral},
                                                     {"glm4moe", ToolFormat::Glm},
                                                     {"phi3", ToolFormat::None},
                                                     {"Kimi-K2-Instruct", ToolFormat::Kimi},
                                                     {"gptoss", ToolFormat::Harmony}};
  for (const auto& [name, format] : real) {
    EXPECT_EQ(guess_tool_format(read_file(*root / "templates" / (std::string(name) + ".jinja"))), format) << name;
  }
}

}  // namespace
}  // namespace apus
