// SPDX-License-Identifier: Apache-2.0
// Tools that are strict where the model may also just talk: whatever it says, what the parser takes for a call is one.
#include "base/error.h"
#include "tests/guide/guide_tools.h"

namespace apus {
namespace {

using namespace testing_guide;

const Json kTools = Json::parse(R"([
  {"type": "function", "function": {"name": "weather", "strict": true, "parameters": {"type": "object",
     "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
     "required": ["city"], "additionalProperties": false}}},
  {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "required": ["zone"]}}}])");

constexpr ToolFormat kFormats[] = {ToolFormat::Hermes,    ToolFormat::Llama3,  ToolFormat::QwenCoder,
                                   ToolFormat::DeepSeek,  ToolFormat::Mistral, ToolFormat::Kimi,
                                   ToolFormat::ToolCalls, ToolFormat::Harmony, ToolFormat::Glm};

std::unique_ptr<Constraint> talk(ToolFormat format, bool reasoning = false, bool in_reasoning = false) {
  return guide_talk(bundled().words, {.format = format, .tools = &kTools, .strict_only = true}, reasoning,
                    in_reasoning);
}

struct Calls {
  const char *weather, *wrong_days, *unknown, *any;  // after some text
};
Calls calls_of(ToolFormat format) {
  switch (format) {
    case ToolFormat::Hermes:
      return {"Look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>",
              "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\", \"days\": 9}}\n</tool_call>",
              "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>",
              "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"x\": [1]}}\n</tool_call>"};
    case ToolFormat::Llama3:
      return {"\n{\"name\": \"weather\", \"parameters\": {\"city\": \"Bern\"}}",
              "{\"name\": \"weather\", \"parameters\": {\"city\": \"Bern\", \"days\": 9}}",
              "<|python_tag|>{\"name\": \"other\", \"parameters\": {}}",
              "<|python_tag|>{\"name\": \"now\", \"parameters\": {\"x\": [1]}}"};
    case ToolFormat::QwenCoder:
      return {
          "Look.\n<tool_call>\n<function=weather>\n<parameter=city>\nBern\n</parameter>\n</function>\n</tool_call>",
          "<function=weather>\n<parameter=city>\nBern\n</parameter>\n<parameter=days>\n9\n</parameter>\n</function>",
          "<tool_call>\n<function=other>\n</function>\n</tool_call>",
          "<tool_call>\n<function=now>\n<parameter=x>\n[1]\n</parameter>\n</function>\n</tool_call>"};
    case ToolFormat::Glm:  // breaks between the marks or none
      return {"Look.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n</tool_call>",
              "<tool_call>weather<arg_key>city</arg_key><arg_value>Bern</arg_value><arg_key>days</arg_key>"
              "<arg_value>9</arg_value></tool_call>",
              "<tool_call>other\n</tool_call>",
              "<tool_call>now<arg_key>x</arg_key><arg_value>[1]</arg_value></tool_call>"};
    case ToolFormat::DeepSeek:
      return {
          "Look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": "
          "\"Bern\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
          "<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Bern\", \"days\": "
          "9}\n```<｜tool▁call▁end｜>",
          "<｜tool▁call▁begin｜>other<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
          "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{\"x\": [1]}\n```<｜tool▁call▁end｜>"};
    case ToolFormat::Kimi:
      return {
          "Look.<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": "
          "\"Bern\"}<|tool_call_end|>",
          "<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": \"Bern\", \"days\": 9}"
          "<|tool_call_end|>",
          "<|tool_call_begin|>functions.other:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
          "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{\"x\": [1]}<|tool_call_end|>"};
    case ToolFormat::ToolCalls:
      return {"Look.\n<tool_calls>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_calls>",
              "<tool_calls>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\", \"days\": 9}}\n</tool_calls>",
              "<tool_calls>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_calls>",
              "<tool_calls>\n{\"name\": \"now\", \"arguments\": {\"x\": [1]}}\n</tool_calls>"};
    case ToolFormat::Harmony:
      return {
          "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
          "<|constrain|>json<|message|>{\"city\": \"Bern\"}<|call|>",
          " to=functions.weather<|channel|>commentary json<|message|>{\"city\": \"Bern\", \"days\": 9}<|call|>",
          "<|channel|>commentary to=functions.other <|constrain|>json<|message|>{}<|call|>",
          " to=functions.now<|channel|>commentary <|constrain|>json<|message|>{\"x\": [1]}<|call|>"};
    default:
      return {"Look.[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}]",
              "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\", \"days\": 9}}]",
              "[TOOL_CALLS][{\"name\": \"other\", \"arguments\": {}}]",
              "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {\"x\": [1]}}]"};
  }
}

TEST(GuideTalk, TextIsFreeAndCallsAreNot) {
  for (const ToolFormat format : kFormats) {
    SCOPED_TRACE(tool_format_name(format));
    const auto c = talk(format);
    for (const char* text : {"", "Hello <b> {x} [1] <", "<tool_cal", "ein Häkchen ✓, <｜tool▁call", "{x} is a set"})
      EXPECT_TRUE(takes(bundled(), *c, text)) << text;
    const Calls calls = calls_of(format);
    for (const std::string more : {"", " Done.", "\n"})
      EXPECT_TRUE(takes(bundled(), *c, calls.weather + more)) << calls.weather;
    EXPECT_TRUE(takes(bundled(), *c, calls.any)) << calls.any << ": without \"strict\" any object will do";
    EXPECT_FALSE(takes(bundled(), *c, calls.wrong_days)) << calls.wrong_days;
    EXPECT_FALSE(takes(bundled(), *c, calls.unknown)) << calls.unknown;
    const std::string half = std::string(calls.weather).substr(0, std::string(calls.weather).find("Bern") + 2);
    EXPECT_FALSE(takes(bundled(), *c, half)) << "a call is not left in the middle";
    EXPECT_EQ(parse_chat(calls.wrong_days, {.format = format, .tools = &kTools}).calls.size(), 1u)
        << "the parser would have taken it";
  }
}

TEST(GuideTalk, WholeTokensAcrossTheMark) {
  const auto& w = bundled();
  const auto fits = [&](const std::string& text) {
    const auto c = talk(ToolFormat::Hermes);
    for (const int32_t t : w.tokenizer->encode(text)) {
      if (!allows(*c, t)) return false;
      c->accept(t);
    }
    return true;
  };
  const Calls calls = calls_of(ToolFormat::Hermes);
  EXPECT_TRUE(fits(calls.weather));
  EXPECT_FALSE(fits(calls.wrong_days));
  EXPECT_TRUE(fits("Hello<|im_start|> <|im_start|>there")) << "special tokens may stand in free text";
}

TEST(GuideTalk, ThoughtsAreNoCalls) {
  const std::string bad = "<tool_call> oops </tool_call>";
  const auto c = talk(ToolFormat::Hermes, /*reasoning=*/true);
  EXPECT_TRUE(takes(bundled(), *c, "\n<think>" + bad + "</think>\n\nYes."));
  EXPECT_FALSE(takes(bundled(), *c, "<think></think>" + bad));
  EXPECT_FALSE(takes(bundled(), *c, "Well. <think>" + bad)) << "only an answer's beginning is thought";
  const auto inside = talk(ToolFormat::Hermes, true, /*in_reasoning=*/true);
  EXPECT_TRUE(takes(bundled(), *inside, bad + "</think>Yes."));
  EXPECT_FALSE(takes(bundled(), *inside, "hm</think>" + bad));
  EXPECT_FALSE(takes(bundled(), *talk(ToolFormat::Hermes), "<think>" + bad + "</think>")) << "here it is a call";
}

bool valid_weather(const Json& a) {
  if (!a.is_object() || !a.contains("city") || !a["city"].is_string()) return false;
  size_t characters = 0;
  for (const char b : a["city"].get<std::string>()) characters += (b & 0xC0) != 0x80;
  const Json days = a.value("days", Json(1));
  return characters <= 12 && days.is_number_integer() && days >= 1 && days <= 7 && a.size() == 1 + a.count("days");
}

// Pieces of calls in any order, cut off where they are not allowed.
std::string babble(const Words& w, Constraint& c, Random& random) {
  static const std::vector<std::string> kPieces = {"<tool_call>",
                                                   "</tool_call>",
                                                   "\n",
                                                   " ",
                                                   "{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   ", ",
                                                   ";",
                                                   "[TOOL_CALLS]",
                                                   "<|python_tag|>",
                                                   "<function=",
                                                   "weather",
                                                   "now",
                                                   ">\n",
                                                   "<parameter=city>\n",
                                                   "<parameter=days>\n",
                                                   "Bern and more",
                                                   "\n</parameter>\n",
                                                   "</function>",
                                                   "<｜tool▁call▁begin｜>",
                                                   "<｜tool▁calls▁begin｜>",
                                                   "function",
                                                   "<｜tool▁sep｜>",
                                                   "\n```json\n",
                                                   "```",
                                                   "<｜tool▁call▁end｜>",
                                                   "\"name\": \"",
                                                   "{\"name\": \"weather\"",
                                                   "\", ",
                                                   "\"arguments\": {\"city\": 5}",
                                                   "\"parameters\": ",
                                                   "{\"city\": \"Bern\"",
                                                   ", \"days\": 9",
                                                   "}}",
                                                   "<think>",
                                                   "</think>",
                                                   "null",
                                                   "say it",
                                                   "\"arguments\": "};
  std::string text;
  for (int i = 0; i < 25; ++i) {
    for (const char b : kPieces[random.below(kPieces.size())]) {
      const auto at =
          std::find_if(w.bytes.begin(), w.bytes.end(), [&](const auto& e) { return e.first == std::string(1, b); });
      if (at == w.bytes.end() || !allows(c, at->second)) break;
      c.accept(at->second);
      text += b;
    }
  }
  return text;
}

// What ends a bare text.
const char* closing_of(ToolFormat format) {
  return format == ToolFormat::QwenCoder ? "</parameter>\n" : format == ToolFormat::Glm ? "</arg_value>" : "";
}

TEST(GuideTalk, WhateverIsSaidTheParserFindsValidCalls) {
  Random random(17, "talk");
  const auto& w = small();
  int weathers = 0, others = 0;
  for (const ToolFormat format : kFormats)
    for (const bool reasoning : {false, true})
      for (int i = 0; i < 120; ++i) {
        const bool inside = reasoning && i % 2;
        const auto c =
            guide_talk(w.words, {.format = format, .tools = &kTools, .strict_only = true}, reasoning, inside);
        std::string text = babble(w, *c, random);
        const auto rest = ramble(w, *c, random, 10, closing_of(format));
        ASSERT_TRUE(rest) << text;
        text += *rest;
        const auto said = parse_chat(
            text, {.format = format, .reasoning = reasoning, .starts_in_reasoning = inside, .tools = &kTools});
        for (const auto& call : said.calls) {
          ASSERT_TRUE(call.name == "weather" || call.name == "now") << text;
          const Json arguments = parse_json(call.arguments, "arguments");
          ASSERT_TRUE(arguments.is_object()) << text;
          (call.name == "weather" ? weathers : others)++;
          if (call.name != "weather") continue;
          ASSERT_TRUE(valid_weather(arguments)) << tool_format_name(format) << ": " << text;
        }
      }
  EXPECT_GT(weathers, 50);
  EXPECT_GT(others, 50);
}

TEST(GuideTalk, CoderArgumentsHoldToTheirSchemas) {
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "strict": true, "parameters": {
    "type": "object", "required": ["day", "size", "note", "id"], "properties": {
      "day": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}$"}, "size": {"enum": ["small", "large"]},
      "note": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
      "id": {"type": ["string", "null"], "minLength": 2, "maxLength": 4}}}}}])");
  const auto c = guide_talk(bundled().words, {.format = ToolFormat::QwenCoder, .tools = &tools, .strict_only = true},
                            false, false);
  const auto text = [](const char* day, const char* size, const char* note, const char* id) {
    std::string out = "<function=f>\n";
    for (const auto& [key, value] :
         {std::pair{"day", day}, std::pair{"size", size}, std::pair{"note", note}, std::pair{"id", id}})
      out += std::string("<parameter=") + key + ">\n" + value + "\n</parameter>\n";
    return out + "</function>";
  };
  // In the order in which the description was read.
  Json order = Json::array();
  for (const auto& [key, value] : tools[0]["function"]["parameters"]["properties"].items()) order.push_back(key);
  ASSERT_EQ(order, Json({"day", "size", "note", "id"}));
  const std::string good = text("2026-07", "\"small\"", "\"ab\"", "x1");
  EXPECT_TRUE(takes(bundled(), *c, good));
  const auto read = parse_chat(good, {.format = ToolFormat::QwenCoder, .tools = &tools});
  ASSERT_EQ(read.calls.size(), 1u);
  EXPECT_EQ(Json::parse(read.calls[0].arguments),
            Json::parse(R"({"day": "2026-07", "size": "small", "note": "ab", "id": "x1"})"));
  EXPECT_TRUE(takes(bundled(), *c, text("2026-07", "\"large\"", "null", "null")));
  EXPECT_FALSE(takes(bundled(), *c, text("July", "\"small\"", "null", "x1")));
  EXPECT_FALSE(takes(bundled(), *c, text("2026-07", "\"huge\"", "null", "x1")));
  EXPECT_FALSE(takes(bundled(), *c, text("2026-07", "\"small\"", "\"abcd\"", "x1")));
  EXPECT_FALSE(takes(bundled(), *c, text("2026-07", "\"small\"", "null", "x12345")));
}

TEST(GuideTalk, EitherOfTwo) {
  const auto& w = bundled();
  const auto c = guide_either(guide_choice(w.words, {"yes", "no"}), guide_choice(w.words, {"none", "yesterday"}));
  for (const char* text : {"yes", "no", "none", "yesterday"}) EXPECT_TRUE(takes(w, *c, text)) << text;
  for (const char* text : {"", "ye", "nones", "yesno"}) EXPECT_FALSE(takes(w, *c, text)) << text;
}

}  // namespace
}  // namespace apus
