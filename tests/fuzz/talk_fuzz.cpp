// SPDX-License-Identifier: Apache-2.0
// Tools with schemas of any kind where the model may also just talk: whatever it says, it can go on, and what the
// parser takes for a call, wherever the answer may end, is a call of a tool with the arguments it asks for. The first
// byte chooses the format and the words; then comes a schema, up to a line break, and what the model would like to say.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/random.h"
#include "guide/guide.h"
#include "tests/fuzz/guide_words.h"
#include "tests/guide/allowed.h"
#include "text/tool_calls.h"

namespace {

using namespace apus;

struct Words {
  explicit Words(const std::vector<std::string>& special)
      : tokenizer(
            fuzz::byte_tokenizer({"<tool_call>", "</tool_call>", "{\"", "\":", "\"}", "}}", "</", "\n<"}, special)),
        stop(*tokenizer->id("<end>")),
        guide(make_guide_vocabulary(*tokenizer, std::span(&stop, 1))) {}
  std::shared_ptr<const Tokenizer> tokenizer;
  int32_t stop;
  GuideWords guide;
};

// Marks are special tokens in some vocabularies, and text in others.
const Words& words(bool with_marks) {
  static const Words plain({"<end>"});
  static const Words marks({"<end>", "<other>", "<think>", "</think>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]",
                            "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
                            "<｜tool▁calls▁end｜>"});
  return with_marks ? marks : plain;
}

void check_calls(const std::string& text, const ChatParserOptions& parser) {
  for (const ToolCall& call : parse_chat(text, parser).calls) {
    const Json arguments = Json::parse(call.arguments, nullptr, /*allow_exceptions=*/false);
    if (!arguments.is_object()) std::abort();
    if (call.name != "given" && call.name != "known") std::abort();
    if (call.name == "known" && arguments != Json{{"n", 1}} && arguments != Json{{"n", 2}}) std::abort();
  }
}

// `wish` is said as far as it is allowed; a byte that is not, or is no ASCII, chooses among what is. Then anything.
void say(const Words& w, Constraint& guide, std::string_view wish, const ChatParserOptions& parser) {
  Random random(wish.size(), "talk");
  std::string text;
  for (size_t i = 0; i < wish.size() + 40; ++i) {
    const std::vector<int32_t> tokens = test::allowed(guide);
    if (tokens.empty()) std::abort();  // a dead end
    const bool may_end = std::binary_search(tokens.begin(), tokens.end(), w.stop);
    if (may_end && (i >= wish.size() || i % 8 == 0)) check_calls(text, parser);
    if (guide.finished()) return;
    const int32_t byte = i < wish.size() ? static_cast<uint8_t>(wish[i]) : 255;
    const bool taken = byte < 128 && std::binary_search(tokens.begin(), tokens.end(), byte);
    const int32_t next = taken ? byte : tokens[i < wish.size() ? byte % tokens.size() : random.below(tokens.size())];
    if (next == w.stop) return;
    guide.accept(next);
    text += w.tokenizer->token_bytes(next);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr ToolFormat kFormats[] = {ToolFormat::Hermes, ToolFormat::Llama3, ToolFormat::QwenCoder,
                                     ToolFormat::DeepSeek, ToolFormat::Mistral};
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view schema = input.substr(0, input.find('\n'));
  const std::string_view wish = input.substr(std::min(input.size(), schema.size() + 1));
  const int choice = data[0] / 5;
  const Words& w = words(choice & 1);
  ChatParserOptions parser{.format = kFormats[data[0] % 5], .reasoning = (choice & 2) != 0};
  parser.starts_in_reasoning = parser.reasoning && (choice & 4);
  try {
    Json tools = Json::parse(R"([{"function": {"name": "known", "strict": true, "parameters": {"type": "object",
      "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": false}}}])");
    if (!schema.empty())
      tools.push_back({{"function",
                        {{"name", "given"},
                         {"strict", (choice & 8) != 0},
                         {"parameters", parse_json(schema, "schema", Fault::Usage)}}}});
    parser.tools = &tools;
    const auto guide = guide_talk(
        w.guide, {.format = parser.format, .tools = &tools, .parallel = (choice & 16) != 0, .strict_only = true},
        parser.reasoning, parser.starts_in_reasoning);
    say(w, *guide, wish, parser);
  } catch (const Error& error) {
    if (error.at.fault != Fault::Usage) std::abort();
  }
  return 0;
}
