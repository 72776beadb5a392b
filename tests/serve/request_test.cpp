// SPDX-License-Identifier: Apache-2.0
// Requests as JSON become calls, and mistakes become errors that name the field.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "serve/anthropic_request.h"
#include "serve/api_error.h"
#include "serve/media_parts.h"
#include "serve/openai_request.h"
#include "tests/folder.h"

namespace apus {
namespace fs = std::filesystem;
namespace {

Json J(const char* text) { return Json::parse(text); }
Json chat_body(const char* more) {
  Json body = J(R"({"model": "m", "messages": [{"role": "user", "content": "hi"}]})");
  body.update(J(more));
  return body;
}
ChatCall read(const char* more) { return read_chat_request(chat_body(more), {}); }
std::string param_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const ApiError& e) {
    EXPECT_EQ(e.status, 400);
    EXPECT_FALSE(std::string(e.what()).empty());
    return e.param.empty() ? "(none)" : e.param;
  }
  return "(accepted)";
}

TEST(OpenAiRequest, EveryFieldArrives) {
  const ChatCall c = read(
      R"({"temperature": 0.5, "top_p": 0.9, "top_k": 3, "min_p": 0.1, "presence_penalty": 1, "frequency_penalty": -1,
    "repetition_penalty": 1.1, "seed": -7, "n": 2, "stop": ["a", "b"], "max_completion_tokens": 9, "max_tokens": 5, "logprobs": true, "top_logprobs": 4,
    "logit_bias": {"5": -100, "6": 1.5}, "stream": true, "stream_options": {"include_usage": true}, "priority": 3,
    "chat_template_kwargs": {"enable_thinking": false}, "parallel_tool_calls": false, "user": "u", "metadata": {"x": "y"}, "store": false})");
  EXPECT_EQ(c.wishes.temperature, 0.5);
  EXPECT_EQ(c.wishes.top_p, 0.9);
  EXPECT_EQ(c.wishes.top_k, 3);
  EXPECT_EQ(c.wishes.min_p, 0.1);
  EXPECT_EQ(c.wishes.presence_penalty, 1);
  EXPECT_EQ(c.wishes.frequency_penalty, -1);
  EXPECT_EQ(c.wishes.repetition_penalty, 1.1);
  EXPECT_EQ(c.wishes.max_new_tokens, 9);
  EXPECT_EQ(c.seed, static_cast<uint64_t>(-7));
  EXPECT_EQ(c.n, 2);
  EXPECT_EQ(c.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(c.top_logprobs, 4);
  EXPECT_EQ(c.logit_bias, (std::vector<std::pair<int32_t, float>>{{5, -100.f}, {6, 1.5f}}));
  EXPECT_TRUE(c.stream && c.stream_usage && !c.parallel_calls);
  EXPECT_EQ(c.priority, -3);
  EXPECT_EQ(c.kwargs["enable_thinking"], false);
  EXPECT_EQ(c.ignored, std::vector<std::string>{"max_tokens"}) << "max_completion_tokens counts";
  EXPECT_EQ(read(R"({"temprature": 0, "user": "u", "frequency": null})").ignored,
            std::vector<std::string>{"temprature"});
  EXPECT_EQ(read("{}").top_logprobs, -1);
  EXPECT_EQ(read(R"({"temperature": null, "stop": null, "n": null, "tools": null, "response_format": null})").n, 1)
      << "null is absent";
}

TEST(OpenAiRequest, EverySamplingFieldIsRead) {
  each_sampling_field([](const auto& field) {
    const std::string name = field.in_requests();
    EXPECT_EQ(read(Json{{name, field.least}}.dump().c_str()).wishes.*field.wish, field.least) << name;
    EXPECT_EQ(param_of([&] { read(Json{{name, "much"}}.dump().c_str()); }), name);
    EXPECT_EQ(param_of([&] { read(Json{{name, static_cast<double>(field.least) - 1}}.dump().c_str()); }), name);
  });
  EXPECT_EQ(read("{}").wishes.top_k, std::nullopt);
}

TEST(OpenAiRequest, MediaComeWithTheRequest) {
  const ChatCall call =
      read_chat_request(Json::parse(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "What is "},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}, {"type": "text", "text": "?"},
        {"type": "input_image", "image_url": "https://a.b/c.png"},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "audio_url", "audio_url": {"url": "http://a.b/c.wav"}},
        {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AA=="}},
        {"type": "video", "video": ["1.png", "2.png"]}]}]})"),
                        {});
  EXPECT_EQ(call.messages[0]["content"], "What is <image>?<image><audio><audio><video><video>");
  EXPECT_EQ(call.media, Json::parse(R"({"images": ["data:image/png;base64,AA==", "https://a.b/c.png"],
    "audios": ["data:audio/wav;base64,AAAA", "http://a.b/c.wav"],
    "videos": ["data:video/mp4;base64,AA==", ["1.png", "2.png"]]})"));
}

// As ms-swift's client sends them: beside the messages, with tags where they belong.
TEST(OpenAiRequest, MediaAreListedBesideTheMessages) {
  const ChatCall call = read_chat_request(
      Json::parse(
          R"({"messages": [{"role": "user", "content": "<image>What?"}], "images": ["data:image/png;base64,AA==",
        {"url": "https://a.b/c.png"}], "videos": [["1.png", "2.png"]]})"),
      {});
  EXPECT_EQ(call.media, Json::parse(R"({"images": ["data:image/png;base64,AA==", "https://a.b/c.png"],
    "videos": [["1.png", "2.png"]]})"));
  const auto refused = [](const char* body) {
    try {
      read_completion_request(Json::parse(body), {});
    } catch (const ApiError& e) {
      return e.param;
    }
    return std::string();
  };
  EXPECT_EQ(refused(R"({"prompt": "a", "images": ["https://a.b/c.png"]})"), "images");
}

TEST(AnthropicRequest, ImagesComeWithTheRequest) {
  const ChatCall call =
      read_messages_request(Json::parse(R"({"max_tokens": 5, "messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
        {"type": "text", "text": "What?"}]}, {"role": "assistant", "content": "x"},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [
        {"type": "image", "source": {"type": "url", "url": "https://a.b/c.png"}}]}]}]})"),
                            false);
  EXPECT_EQ(call.messages[0]["content"], "<image>What?");
  EXPECT_EQ(call.messages[2]["content"], "<image>");
  EXPECT_EQ(call.media["images"], Json::array({"data:image/png;base64,AA==", "https://a.b/c.png"}));
}

// What a client may name beside what it sends: files below one folder, by their real paths.
TEST(MediaRules, FilesLieInTheFolderAndAreNotTooMany) {
  const test::Folder folder;
  fs::create_directories(folder.path / "open");
  for (const char* name : {"open/a.png", "secret.png"}) write_file_atomic(folder.path / name, "x");
  fs::create_symlink(folder.path / "secret.png", folder.path / "open/link.png");
  const MediaRules rules{.folder = (folder.path / "open").string(), .most = 2};
  const auto allowed = [](const MediaRules& r, const Json& entries) {
    return allowed_media({{"images", entries}}, r)["images"];
  };
  const std::string real = fs::canonical(folder.path / "open/a.png").string();
  EXPECT_EQ(allowed(rules, {"data:x", "http://a.b/c"}), Json({"data:x", "http://a.b/c"}));
  EXPECT_EQ(allowed(rules, {"a.png", "file://" + real}), Json({real, real}));
  for (const std::string& other :
       {std::string("../secret.png"), (folder.path / "secret.png").string(), std::string("link.png"), std::string("."),
        std::string("none.png"), std::string("ftp://a.b/c.png")})
    EXPECT_THROW(allowed(rules, {other}), ApiError) << other;
  EXPECT_THROW(allowed({}, {real}), ApiError);
  EXPECT_THROW(allowed(rules, {"data:1", "data:2", "data:3"}), ApiError);
  EXPECT_THROW(allowed_media({{"videos", {{"data:1", "data:2", "data:3"}}}}, rules), ApiError);
}

TEST(OpenAiRequest, MistakesNameTheField) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"messages": []})", "messages"},
      {R"({"messages": "hi"})", "messages"},
      {R"({"messages": [1]})", "messages[0]"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content"},
      {R"({"messages": [{"content": "x"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": 3}]}]})",
       "messages[0].content[0].image_url"},
      {R"({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]})",
       "messages[0].content[0].input_audio.data"},
      {R"({"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]})", "messages[0].content[0].type"},
      {R"({"temperature": "hot"})", "temperature"},
      {R"({"temperature": -1})", "temperature"},
      {R"({"top_p": 2})", "top_p"},
      {R"({"n": 0})", "n"},
      {R"({"n": 1.5})", "n"},
      {R"({"n": 100000})", "n"},
      {R"({"stop": 5})", "stop"},
      {R"({"stop": ["a", 1]})", "stop"},
      {R"({"logit_bias": {"x": 1}})", "logit_bias"},
      {R"({"logit_bias": {"1": 200}})", "logit_bias"},
      {R"({"top_logprobs": 3})", "top_logprobs"},
      {R"({"logprobs": true, "top_logprobs": 21})", "top_logprobs"},
      {R"({"seed": "x"})", "seed"},
      {R"({"stream": 1})", "stream"},
      {R"({"stream_options": {"include_usage": true}})", "stream_options"},
      {R"({"response_format": {"type": "xml"}})", "response_format.type"},
      {R"({"response_format": {"type": "json_schema"}})", "response_format.json_schema"},
      {R"({"response_format": {"type": "json_object"}, "guided_regex": "a"})", "response_format"},
      {R"({"response_format": {"type": "json_object", "schema": {"type": "array"}}})", "response_format.schema"},
      {R"({"tools": [{"type": "function"}]})", "tools[0].function"},
      {R"({"tool_choice": "required"})", "tool_choice"},
      {R"({"tool_choice": "always"})", "tool_choice"},
      {R"({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "function", "function": {"name": "g"}}})",
       "tool_choice"},
      {R"({"functions": [{"name": "f"}], "tools": [{"type": "function", "function": {"name": "f"}}]})", "functions"},
      {R"({"images": [3]})", "images"},
      {R"({"mm_processor_kwargs": {"fps": 2}})", "mm_processor_kwargs"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,", "detail": "low"}}]}]})",
       "messages[0].content[0].image_url.detail"},
      {R"({"messages": [{"role": "user", "content": [{"type": "video", "video": "data:,", "fps": 1}]}]})",
       "messages[0].content[0].fps"},
      {R"({"best_of": 3})", "best_of"},
      {R"({"num_beams": 4})", "num_beams"},
      {R"({"max_tokens": 1e300})", "max_tokens"},
      {R"({"seed": 1e19})", "seed"},
      {R"({"stop_token_ids": [-1]})", "stop_token_ids"},
      {R"({"guided_grammar": 3})", "guided_grammar"},
      {R"({"add_generation_prompt": true, "continue_final_message": true})", "add_generation_prompt"},
      {R"({"modalities": ["text", "smell"]})", "modalities"},
      {R"({"max_tokens": 0})", "max_tokens"},
      {R"({"messages": [{"role": "", "content": "x"}]})", "messages[0].role"},
      {R"({"store": true})", "store"},
      {R"({"verbosity": "low"})", "verbosity"},
      {R"({"reasoning_effort": "much"})", "reasoning_effort"},
      {R"({"stream": true, "stream_options": {"include_obfuscation": true}})", "stream_options.include_obfuscation"},
      {R"({"tools": [{"type": "custom", "custom": {"name": "f"}}]})", "tools[0].type"},
      {R"({"tools": [{"type": "function", "function": {"name": ""}}]})", "tools[0].function.name"},
      {R"({"tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "f"}}]})",
       "tools[1].function.name"},
      {R"({"messages": [{"role": "assistant", "content": null, "function_call": {"arguments": "{}"}}]})",
       "messages[0].function_call.name"},
      {R"({"messages": [{"role": "assistant", "content": "x", "audio": {"id": "a"}}]})", "messages[0].audio"},
      {R"({"max_completion_tokens": 0})", "max_completion_tokens"},
      {R"({"prompt_logprobs": -1})", "prompt_logprobs"}};
  for (const auto& [more, param] : cases) {
    const char* const text = more;
    EXPECT_EQ(param_of([text] { read(text); }), param) << more;
  }
  EXPECT_EQ(param_of([] { read_chat_request(Json::array(), {}); }), "(none)");
}

TEST(OpenAiRequest, MessagesAsTemplatesWantThem) {
  const Json messages = chat_messages(
      J(R"([{"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": null, "refusal": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "2"}, {"role": "assistant", "content": "broken", "tool_calls": [{"id": "c2", "function": {"name": "f", "arguments": "{oops"}}]}])"));
  EXPECT_EQ(messages[0], J(R"({"role": "system", "content": "ab"})"));
  EXPECT_EQ(messages[1]["content"], "");
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["arguments"], J(R"({"x": 1})"));
  EXPECT_FALSE(messages[1].contains("refusal"));
  EXPECT_EQ(messages[2]["tool_call_id"], "c1");
  EXPECT_EQ(chat_messages(J(R"([{"role": "assistant", "content": null, "refusal": "no"}])"))[0]["content"], "no");
  EXPECT_EQ(messages[3]["tool_calls"][0]["function"]["arguments"], "{oops");
}

TEST(OpenAiRequest, ToolsAndForms) {
  const char* const two =
      R"([{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}])";
  const auto with = [&](const std::string& choice) {
    return read((std::string(R"({"tools": )") + two + R"(, "tool_choice": )" + choice + "}").c_str());
  };
  EXPECT_EQ(with("null").tools.size(), 2u);
  EXPECT_EQ(with("\"auto\"").guide.kind, Guide::Kind::None);
  EXPECT_TRUE(with("\"none\"").tools.is_null());
  EXPECT_EQ(with("\"required\"").guide.kind, Guide::Kind::ToolCalls);
  EXPECT_TRUE(with("\"required\"").guide.several);
  const ChatCall named = with(R"({"type": "function", "function": {"name": "g"}})");
  EXPECT_EQ(named.tools.size(), 1u);
  EXPECT_EQ(named.tools[0]["function"]["name"], "g");
  EXPECT_FALSE(named.guide.several);
  const auto allowed = [&](const char* mode, const char* name) {
    return with(str(R"({"type": "allowed_tools", "allowed_tools": {"mode": ")", mode,
                    R"(", "tools": [{"type": "function", "function": {"name": ")", name, R"("}}]}})"));
  };
  EXPECT_EQ(allowed("auto", "g").tools.size(), 1u);
  EXPECT_EQ(allowed("auto", "g").guide.kind, Guide::Kind::None);
  EXPECT_EQ(allowed("required", "f").guide.schema[0]["function"]["name"], "f");
  EXPECT_TRUE(allowed("required", "f").guide.several);
  EXPECT_EQ(param_of([&] { allowed("auto", "h"); }), "tool_choice");
  EXPECT_EQ(param_of([&] { with(R"({"type": "allowed_tools", "allowed_tools": {"mode": "auto"}})"); }),
            "tool_choice.allowed_tools.tools");
  EXPECT_EQ(
      read(
          R"({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}})")
          .guide.schema,
      J(R"({"type": "object"})"));
  // Instructor writes {} for zod 4's schemas: json_object still means an object.
  for (const char* open : {"{}", "true", R"({"type": ["null", "object"]})"})
    EXPECT_EQ(read(str(R"({"response_format": {"type": "json_object", "schema": )", open, "}}").c_str()).guide.schema,
              J(R"({"type": "object"})"));
  EXPECT_EQ(read(R"({"guided_json": "{\"type\": \"string\"}"})").guide.schema, J(R"({"type": "string"})"));
  EXPECT_EQ(read(R"({"structured_outputs_regex": "a+"})").guide.pattern, "a+");
  EXPECT_EQ(read(R"({"structured_outputs": {"choice": ["x", "y"]}})").guide.choices,
            (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(read(R"({"response_format": {"type": "text"}})").guide.kind, Guide::Kind::None);
}

TEST(OpenAiRequest, PromptsOfEveryKind) {
  const auto prompts = [](const char* prompt) { return read_completion_request({{"prompt", J(prompt)}}, {}).prompts; };
  EXPECT_EQ(prompts("\"a\"")[0].text, "a");
  EXPECT_EQ(prompts(R"(["a", "b"])")[1].text, "b");
  EXPECT_EQ(prompts("[1, 2]")[0].ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(prompts("[[1], [2, 3]]")[1].ids, (std::vector<int32_t>{2, 3}));
  for (const char* bad : {"{}", "[]", "\"\"", "[[]]", "[\"a\", 1.5]", "[1.5]", "7"})
    EXPECT_EQ(param_of([bad, &prompts] { prompts(bad); }), "prompt") << bad;
  EXPECT_EQ(param_of([] { read_completion_request({{"prompt", "a"}, {"max_tokens", 0}}, {}); }), "max_tokens");
  const CompletionCall scored =
      read_completion_request({{"prompt", "a"}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 2}}, {});
  EXPECT_TRUE(scored.only_prompt);
  EXPECT_EQ(scored.prompt_logprobs, 2);
  EXPECT_EQ(read_completion_request({{"prompt", "a"}, {"logprobs", true}}, {}).top_logprobs, 0)
      << "as the chat API has it";
  EXPECT_EQ(read_completion_request({{"prompt", "a"}, {"logprobs", true}, {"top_logprobs", 3}}, {}).top_logprobs, 3);
  EXPECT_EQ(read_completion_request({{"prompt", "a"}, {"logprobs", false}}, {}).top_logprobs, -1);
  EXPECT_EQ(param_of([] { read_embedding_request({{"input", "a"}, {"encoding_format", "hex"}}); }), "encoding_format");
  EXPECT_EQ(param_of([] { read_embedding_request(Json::object()); }), "input");
  EXPECT_EQ(param_of([] {
              read_embedding_request({{"input", "a"}, {"truncate_prompt_tokens", 5}});
            }),
            "truncate_prompt_tokens");
  EXPECT_EQ(read_embedding_request({{"input", "a"}, {"dimension", 5}, {"user", "u"}}).ignored,
            std::vector<std::string>{"dimension"});
}

TEST(AnthropicRequest, BecomesAChat) {
  const ChatCall c = read_messages_request(J(
      R"({"model": "m", "max_tokens": 7, "system": [{"type": "text", "text": "be brief"}], "temperature": 0.2, "stop_sequences": ["x"],
    "thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {"effort": "low"},
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}], "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
    "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "t"}, {"type": "tool_use", "id": "i", "name": "f", "input": {"a": 1}}]},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "content": [{"type": "text", "text": "r"}]}, {"type": "text", "text": "go on"}]}]})"));
  EXPECT_EQ(c.messages, J(R"([{"role": "system", "content": "be brief"}, {"role": "user", "content": "q"},
    {"role": "assistant", "content": "t", "reasoning_content": "hm", "tool_calls": [{"id": "i", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]},
    {"role": "tool", "tool_call_id": "i", "content": "r"}, {"role": "user", "content": "go on"}])"));
  EXPECT_EQ(c.wishes.max_new_tokens, 7);
  EXPECT_EQ(c.tools[0]["function"]["parameters"], J(R"({"type": "object"})"));
  EXPECT_FALSE(c.parallel_calls);
  EXPECT_EQ(c.kwargs, J(R"({"enable_thinking": true, "reasoning_effort": "low"})"));
  EXPECT_EQ(c.stops, std::vector<std::string>{"x"});
  for (const char* form : {R"("output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}})",
                           R"("output_format": {"type": "json_schema", "schema": {"type": "object"}})"}) {
    const ChatCall formed = read_messages_request(
        J(str(R"({"max_tokens": 7, "messages": [{"role": "user", "content": "q"}], )", form, "}").c_str()));
    EXPECT_EQ(formed.guide.kind, Guide::Kind::JsonSchema);
    EXPECT_EQ(formed.guide.schema, J(R"({"type": "object"})"));
  }
}

TEST(AnthropicRequest, MistakesNameTheField) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"messages": [{"role": "user", "content": "q"}]})", "max_tokens"},
      {R"({"max_tokens": 5})", "messages"},
      {R"({"max_tokens": 5, "messages": [{"role": "system", "content": "q"}]})", "messages[0].role"},
      {R"({"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]})",
       "messages[0].content[0].source.type"},
      {R"({"max_tokens": 5, "messages": [{"role": "user", "content": "q"}], "tools": [{"type": "web_search_20250305", "name": "w"}]})",
       "tools[0].type"},
      {R"({"max_tokens": 5, "messages": [{"role": "user", "content": "q"}], "output_config": {"format": {"type": "xml"}}})",
       "output_config.format.type"},
      {R"({"max_tokens": 5, "messages": [{"role": "user", "content": "q"}], "thinking": {"type": "some"}})",
       "thinking.type"},
      {R"({"max_tokens": 5, "messages": [{"role": "user", "content": "q"}], "context_management": {"edits": []}})",
       "context_management"},
      {R"({"max_tokens": 5, "messages": [{"role": "user", "content": "q"}], "tool_choice": {"type": "any"}})",
       "tool_choice"}};
  for (const auto& [body, param] : cases) {
    const char* const text = body;
    const std::string got = param_of([text] { read_messages_request(J(text)); });
    EXPECT_TRUE(got == param ||
                (std::string(param).starts_with("messages[0].content") && got.starts_with("messages[0].content")))
        << body << " " << got;
  }
}

}  // namespace
}  // namespace apus
