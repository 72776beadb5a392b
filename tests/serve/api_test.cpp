// SPDX-License-Identifier: Apache-2.0
// The API without sockets: answers, streams, tool calls, errors.
#include <gtest/gtest.h>

#include "tests/eventually.h"
#include "tests/serve/test_server.h"

namespace apus {
namespace {
using test::ask;
using test::events;
using test::fits;
using test::post;
using test::question;
using test::Served;

std::string joined(const std::vector<Json>& events, const char* key) {
  std::string text;
  for (const auto& e : events)
    if (e.is_object() && e.contains("choices") && !e["choices"].empty() && e["choices"][0]["delta"].contains(key))
      text += e["choices"][0]["delta"][key].get<std::string>();
  return text;
}

TEST(ServeApi, AChat) {
  Served s;
  const auto api = s.api();
  const Json a = post(*api, "/v1/chat/completions", question());
  EXPECT_EQ(a["object"], "chat.completion");
  EXPECT_TRUE(a["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(a["choices"][0]["message"]["content"], "Hello, world!");
  EXPECT_EQ(a["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(a["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(a["choices"][0]["logprobs"].is_null());
  EXPECT_TRUE(a["system_fingerprint"].get<std::string>().starts_with("fp_"));
  const auto prompt = s.tokenizer->encode("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(s.engine.seen()[0].prompt, prompt);
  EXPECT_EQ(a["usage"]["prompt_tokens"], prompt.size());
  EXPECT_EQ(a["usage"]["completion_tokens"], s.tokenizer->encode(s.answer).size() + 1);
  EXPECT_EQ(a["usage"]["total_tokens"],
            a["usage"]["prompt_tokens"].get<int64_t>() + a["usage"]["completion_tokens"].get<int64_t>());
  EXPECT_TRUE(test::eventually([&] { return api->active() == 0; }));
}

TEST(ServeApi, SeveralAnswersLogprobsAndLength) {
  Served s;
  const auto api = s.api();
  const Json a = post(*api, "/v1/chat/completions",
                      question({{"n", 3},
                                {"seed", 5},
                                {"logprobs", true},
                                {"top_logprobs", 2},
                                {"max_tokens", 2},
                                {"return_token_ids", true}}));
  ASSERT_EQ(a["choices"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const Json& c = a["choices"][i];
    EXPECT_EQ(c["index"], i);
    EXPECT_EQ(c["finish_reason"], "length");
    ASSERT_EQ(c["logprobs"]["content"].size(), 2u);
    EXPECT_EQ(c["logprobs"]["content"][0]["top_logprobs"].size(), 2u);
    EXPECT_EQ(c["logprobs"]["content"][0]["logprob"], -0.5);
    EXPECT_TRUE(c["logprobs"].contains("refusal")) << "clients' types have it";
    EXPECT_EQ(c["token_ids"].size(), 2u);
    EXPECT_EQ(s.engine.seen()[i].sampling.seed, 5 + i);
  }
  EXPECT_EQ(a["usage"]["completion_tokens"], 6);
  EXPECT_EQ(a["usage"]["prompt_tokens"], s.engine.seen()[0].prompt.size()) << "the prompt counts once";
  const Json whole = post(*api, "/v1/chat/completions", question({{"logprobs", true}}));
  std::string text;
  for (const auto& t : whole["choices"][0]["logprobs"]["content"]) text += t["token"].get<std::string>();
  EXPECT_EQ(text, s.answer) << "the stop token is no part of the content";
}

TEST(ServeApi, AStream) {
  Served s;
  const auto api = s.api();
  const HttpAnswer a =
      ask(*api, "POST", "/v1/chat/completions",
          question({{"stream", true}, {"stream_options", {{"include_usage", true}}}, {"logprobs", true}}).dump());
  EXPECT_EQ(a.content_type, "text/event-stream");
  const auto all = events(a.body);
  ASSERT_GE(all.size(), 5u);
  EXPECT_EQ(all[0]["choices"][0]["delta"], Json::parse(R"({"role": "assistant", "content": ""})"));
  EXPECT_EQ(all[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(joined(all, "content"), s.answer);
  EXPECT_EQ(all.back(), "[DONE]");
  EXPECT_TRUE(all[all.size() - 2]["choices"].empty());
  EXPECT_GT(all[all.size() - 2]["usage"]["completion_tokens"], 0);
  EXPECT_EQ(all[all.size() - 3]["choices"][0]["finish_reason"], "stop");
  std::string text;
  for (const auto& e : all)
    if (e.is_object() && !e["choices"].empty() && !e["choices"][0]["logprobs"].is_null())
      for (const auto& t : e["choices"][0]["logprobs"]["content"]) text += t["token"].get<std::string>();
  EXPECT_EQ(text, s.answer) << "every token's log-prob is told once";
}

TEST(ServeApi, ToolCallsWholeAndStreamed) {
  Served s;
  s.answer =
      "<think>\nlet me see\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": "
      "1}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";
  const auto api = s.api();
  const Json tools = Json::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {}}}, {"type": "function", "function": {"name": "g"}}])");
  const Json a = post(*api, "/v1/chat/completions", question({{"tools", tools}}));
  const Json& m = a["choices"][0]["message"];
  EXPECT_EQ(m["reasoning_content"], "let me see");
  EXPECT_EQ(m["content"], "I look.");
  ASSERT_EQ(m["tool_calls"].size(), 2u);
  EXPECT_EQ(m["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(Json::parse(m["tool_calls"][0]["function"]["arguments"].get<std::string>()), Json({{"x", 1}}));
  EXPECT_EQ(a["choices"][0]["finish_reason"], "tool_calls");

  const auto all =
      events(ask(*api, "POST", "/v1/chat/completions", question({{"tools", tools}, {"stream", true}}).dump()).body);
  EXPECT_EQ(joined(all, "content"), "I look.");
  EXPECT_EQ(joined(all, "reasoning_content"), "let me see");
  std::map<int, std::string> names, arguments;
  for (const auto& e : all)
    if (e.is_object() && e["choices"][0]["delta"].contains("tool_calls"))
      for (const auto& c : e["choices"][0]["delta"]["tool_calls"]) {
        if (c["function"].contains("name")) {
          names[c["index"]] += c["function"]["name"].get<std::string>();
          EXPECT_TRUE(c["id"].get<std::string>().starts_with("call_"));
        }
        arguments[c["index"]] += c["function"]["arguments"].get<std::string>();
      }
  EXPECT_EQ(names, (std::map<int, std::string>{{0, "f"}, {1, "g"}}));
  EXPECT_EQ(Json::parse(arguments[0]), Json({{"x", 1}}));
  EXPECT_EQ(all[all.size() - 2]["choices"][0]["finish_reason"], "tool_calls");

  const Json one = post(*api, "/v1/chat/completions", question({{"tools", tools}, {"parallel_tool_calls", false}}));
  EXPECT_EQ(one["choices"][0]["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(one["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_TRUE(s.engine.becomes_idle());
  const Json none = post(*api, "/v1/chat/completions", question({{"tools", tools}, {"tool_choice", "none"}}));
  EXPECT_FALSE(none["choices"][0]["message"].contains("tool_calls")) << "without tools a call is text";
}

TEST(ServeApi, FormsBecomeConstraints) {
  Served s;
  const auto api = s.api();
  const auto request = [&](const Json& more) {
    post(*api, "/v1/chat/completions", question(more));
    return s.engine.seen().back();
  };
  EXPECT_FALSE(request(Json::object()).constraint);
  EngineRequest r = request({{"guided_choice", {"yes", "no"}}});
  EXPECT_TRUE(fits(s, r, "yes"));
  EXPECT_FALSE(fits(s, r, "maybe"));
  r = request({{"response_format", {{"type", "json_object"}}}});
  EXPECT_TRUE(fits(s, r, "{\"a\": 1}"));
  EXPECT_FALSE(fits(s, r, "Hello"));
  r = request({{"guided_regex", "[0-9]+"}});
  EXPECT_TRUE(fits(s, r, "42"));
  r = request({{"guided_regex", "[0-9]+"}, {"chat_template_kwargs", {{"enable_thinking", true}}}});
  EXPECT_TRUE(fits(s, r, "hm</think>42")) << "thoughts come first where the prompt begins them";
  const Json tools = Json::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}}}])");
  r = request({{"tools", tools}, {"tool_choice", "required"}});
  EXPECT_TRUE(fits(s, r, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>"));
  EXPECT_FALSE(fits(s, r, "Hello"));
  EXPECT_FALSE(request({{"tools", tools}}).constraint) << "auto restricts nothing";
}

TEST(ServeApi, WhatTheTemplateCannotSayIsRefused) {
  Served s;
  const auto api = s.api();
  const auto prompt = [&](const Json& more) {
    post(*api, "/v1/chat/completions", question(more));
    return s.tokenizer->decode(s.engine.seen().back().prompt);
  };
  EXPECT_NE(prompt({{"reasoning_effort", "low"}}).find("<think>"), std::string::npos) << "it can think, or not";
  EXPECT_EQ(prompt({{"reasoning_effort", "none"}}).find("<think>"), std::string::npos);
  EXPECT_NE(
      prompt({{"reasoning_effort", "none"}, {"chat_template_kwargs", {{"enable_thinking", true}}}}).find("<think>"),
      std::string::npos)
      << "what is said to the template itself counts";
  s.chat = Chat(std::filesystem::temp_directory_path(), s.tokenizer,
                {.chat_template = "{% for m in messages %}{{ m.content }}{{ reasoning_effort }}{% endfor %}"});
  EXPECT_EQ(prompt({{"reasoning_effort", "high"}}), "hihigh");
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
  const Json refused = post(*api, "/v1/chat/completions", question({{"tools", tools}}), 400)["error"];
  EXPECT_EQ(refused["param"], "tools");
  EXPECT_NE(refused["message"].get<std::string>().find("--agent_template hermes"), std::string::npos) << "what helps";
  EXPECT_EQ(prompt({{"tools", tools}, {"tool_choice", "none"}}), "hi");
  s.chat = Chat(std::filesystem::temp_directory_path(), s.tokenizer,
                {.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"});
  EXPECT_EQ(post(*api, "/v1/chat/completions", question({{"reasoning_effort", "high"}}), 400)["error"]["param"],
            "reasoning_effort");
}

TEST(ServeApi, StopStrings) {
  Served s;
  s.answer = "one two three four";
  const auto api = s.api();
  Json a = post(*api, "/v1/chat/completions", question({{"stop", {" three"}}}));
  EXPECT_EQ(a["choices"][0]["message"]["content"], "one two");
  EXPECT_EQ(a["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(a["choices"][0]["stop_reason"], " three");
  const auto streamed =
      events(ask(*api, "POST", "/v1/chat/completions", question({{"stop", {" three"}}, {"stream", true}}).dump()).body);
  EXPECT_EQ(streamed[streamed.size() - 2]["choices"][0]["stop_reason"], " three");
  a = post(*api, "/v1/chat/completions", question({{"stop", " three"}, {"include_stop_str_in_output", true}}));
  EXPECT_EQ(a["choices"][0]["message"]["content"], "one two three");
  EXPECT_TRUE(s.engine.becomes_idle()) << "what the stop string cut off is cancelled";
}

TEST(ServeApi, Completions) {
  Served s;
  const auto api = s.api();
  Json a = post(*api, "/v1/completions", {{"prompt", Json::array({"a", "b"})}, {"n", 2}});
  ASSERT_EQ(a["choices"].size(), 4u);
  EXPECT_EQ(a["object"], "text_completion");
  EXPECT_EQ(a["choices"][3]["text"], s.answer);
  EXPECT_EQ(s.engine.seen()[0].prompt, s.tokenizer->encode("a", true)) << "as it is, no template";
  EXPECT_EQ(s.engine.seen()[2].prompt, s.tokenizer->encode("b", true));
  a = post(*api, "/v1/completions",
           {{"prompt", Json::array({5, 6, 7})}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 0}});
  const Json& l = a["choices"][0]["logprobs"];
  EXPECT_EQ(l["tokens"].size(), 3u);
  EXPECT_TRUE(l["token_logprobs"][0].is_null());
  EXPECT_EQ(l["token_logprobs"][1], -1);
  EXPECT_EQ(a["choices"][0]["text"], s.tokenizer->decode(std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(a["usage"]["completion_tokens"], 0);
  const auto all = events(ask(*api, "POST", "/v1/completions", R"({"prompt": "x", "stream": true})").body);
  std::string text;
  for (const auto& e : all)
    if (e.is_object()) text += e["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(text, s.answer);
}

TEST(ServeApi, EmbeddingsTokensModelsMetrics) {
  Served s;
  const auto api = s.api();
  const Json e = post(*api, "/v1/embeddings", {{"input", Json::array({"a", "b c"})}});
  ASSERT_EQ(e["data"].size(), 2u);
  double squares = 0;
  for (const auto& x : e["data"][1]["embedding"]) squares += x.get<double>() * x.get<double>();
  EXPECT_NEAR(squares, 1, 1e-5);
  EXPECT_EQ(post(*api, "/v1/embeddings", {{"input", "a"}, {"encoding_format", "base64"}})["data"][0]["embedding"]
                .get<std::string>()
                .size(),
            16u);
  EXPECT_EQ(post(*api, "/v1/embeddings", {{"input", "a"}, {"dimensions", 2}})["data"][0]["embedding"].size(), 2u);
  EXPECT_EQ(post(*api, "/v1/embeddings", {{"input", "a"}, {"dimensions", 4}}, 400)["error"]["param"], "dimensions");
  const Json t = post(*api, "/tokenize", {{"prompt", "Hello, world!"}, {"return_token_strs", true}});
  EXPECT_EQ(t["tokens"].get<std::vector<int32_t>>(), s.tokenizer->encode("Hello, world!", true));
  EXPECT_EQ(t["count"], t["token_strs"].size());
  EXPECT_EQ(post(*api, "/detokenize", {{"tokens", t["tokens"]}})["prompt"], "Hello, world!");
  EXPECT_GT(post(*api, "/tokenize", question())["count"], 3);
  EXPECT_EQ(post(*api, "/detokenize", {{"tokens", {5, 1 << 21}}}, 400)["error"]["param"], "tokens")
      << "none is dropped in silence";
  EXPECT_EQ(post(*api, "/tokenize", question({{"model", "other"}}), 404)["error"]["code"], "model_not_found");
  EXPECT_EQ(post(*api, "/tokenize", {{"prompt", "a"}, {"model", "other"}}, 404)["error"]["code"], "model_not_found");
  const Json models = Json::parse(ask(*api, "GET", "/v1/models").body);
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  EXPECT_EQ(Json::parse(ask(*api, "GET", "/v1/models/tiny").body)["id"], "tiny");
  EXPECT_EQ(ask(*api, "GET", "/v1/models/other").status, 404);
  EXPECT_EQ(ask(*api, "GET", "/health").status, 200);
  EXPECT_EQ(ask(*api, "POST", "/ping").status, 200);
  post(*api, "/v1/chat/completions", question());
  const std::string metrics = ask(*api, "GET", "/metrics").body;
  EXPECT_NE(metrics.find("apus_http_requests_total{path=\"/v1/embeddings\",status=\"200\"} 3"), std::string::npos)
      << metrics;
  EXPECT_NE(metrics.find("apus_first_token_seconds_count 1"), std::string::npos);
  EXPECT_NE(metrics.find("apus_generated_tokens_total"), std::string::npos);
}

TEST(ServeApi, InferAnswersManyAtOnce) {
  Served s;
  const auto api = s.api();
  Json rows = Json::array();
  for (int i = 0; i < 5; ++i)
    rows.push_back({{"messages", Json::array({{{"role", "user"}, {"content", str("q", i)}}})}});
  const Json a = post(*api, "/infer/", {{"infer_requests", rows}, {"request_config", {{"max_tokens", 2}}}});
  ASSERT_EQ(a.size(), 5u);
  for (const auto& one : a) EXPECT_EQ(one["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(post(*api, "/infer/", {{"infer_requests", 5}}, 400)["error"]["param"], "infer_requests");
}

TEST(ServeApi, Errors) {
  Served s;
  const auto api = s.api();
  EXPECT_EQ(ask(*api, "POST", "/v1/chat/completions", "{oops").status, 400);
  const auto typed = [&](const char* type) {
    return ask(*api, "POST", "/tokenize", R"({"prompt": "a"})", {{"content-type", type}}).status;
  };
  for (const char* type : {"application/json", "Application/JSON; charset=utf-8", "application/problem+json",
                           "application/x-www-form-urlencoded"})
    EXPECT_EQ(typed(type), 200) << type;
  for (const char* type : {"text/plain", "multipart/form-data; boundary=x", "application/xml", "json"})
    EXPECT_EQ(typed(type), 415) << type;
  const Json bad = Json::parse(ask(*api, "POST", "/v1/chat/completions", "{\"messages\": \"\xff\xfe\"}").body);
  EXPECT_EQ(bad["error"]["type"], "invalid_request_error");
  EXPECT_NE(bad["error"]["message"].get<std::string>().find("UTF-8"), std::string::npos);
  EXPECT_EQ(ask(*api, "POST", "/v1/chat/completions", std::string(100000, '[')).status, 400);
  EXPECT_EQ(ask(*api, "GET", "/nothing").status, 404);
  const HttpAnswer wrong = ask(*api, "GET", "/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers[0], (std::pair<std::string, std::string>{"Allow", "POST"}));
  EXPECT_EQ(post(*api, "/v1/chat/completions", question({{"model", "other"}}), 404)["error"]["code"],
            "model_not_found");
  const Json e = post(*api, "/v1/chat/completions", question({{"temperature", 1000}}), 400)["error"];
  EXPECT_EQ(e["param"], "temperature");
  EXPECT_TRUE(e["code"].is_null());
  Json longer = question();
  longer["messages"][0]["content"] = std::string(3000, '\n') + std::string(5000, 'x') + " y z";
  for (int i = 0; i < 2500; ++i) longer["messages"][0]["content"].get_ref<std::string&>() += " q";
  EXPECT_EQ(post(*api, "/v1/chat/completions", longer, 400)["error"]["code"], "context_length_exceeded");
  longer["messages"][0]["content"] = std::string(10 << 20, 'x');
  EXPECT_EQ(post(*api, "/v1/chat/completions", longer, 400)["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(post(*api, "/v1/chat/completions", question({{"guided_regex", "a("}}), 400)["error"]["param"],
            "guided_regex");
  EXPECT_EQ(post(*api, "/v1/chat/completions", question({{"logit_bias", {{"2097152", 1}}}}), 400)["error"]["param"],
            "logit_bias");
  EXPECT_EQ(post(*api, "/v1/chat/completions", question({{"stop_token_ids", {1 << 21}}}), 400)["error"]["param"],
            "stop_token_ids");
  EXPECT_EQ(
      post(*api, "/v1/chat/completions", question({{"guided_json", {{"type", "nothing"}}}}), 400)["error"]["param"],
      "guided_json");
  EXPECT_EQ(s.engine.seen().size(), 0u);
}

// Bodies within the size limit that would take minutes or gigabytes.
TEST(ServeApi, ExpensiveBodies) {
  Served s;
  const auto api = s.api();
  const auto refused = [&](const std::string& body) {
    const HttpAnswer a = ask(*api, "POST", "/v1/chat/completions", body);
    EXPECT_EQ(a.status, 400);
    return Json::parse(a.body)["error"];
  };
  std::string keys = "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"logit_bias\": {";
  for (int i = 0; i < 300'000; ++i) keys += str(i ? ", \"" : "\"", i, "\": 1");
  EXPECT_NE(refused(keys + "}}")["message"].get<std::string>().find("keys"), std::string::npos);
  std::string lists = "[";
  for (int i = 0; i < 300'000; ++i) lists += "[],";
  EXPECT_NE(refused(lists + "1]")["message"].get<std::string>().find("lists"), std::string::npos);
  refused(std::string(1 << 20, '['));
  refused(std::string(1 << 20, '{'));
  refused("\"" + std::string(1 << 20, '\\'));
  std::string messages = R"({"messages": [{"role": "user", "content": ""})";
  for (int i = 0; i < 5000; ++i) messages += R"(, {"role": "user", "content": ""})";
  EXPECT_EQ(refused(messages + "]}")["code"], "context_length_exceeded");
  std::string schema = "{";
  for (int i = 0; i < 100'000; ++i) schema += str("\"", i, "\":1,");
  EXPECT_EQ(refused(question({{"guided_json", schema + "\"a\":1}"}}).dump())["param"], "guided_json");
}

TEST(ServeApi, AFailingStep) {
  Served s;
  const auto api = s.api();
  s.engine.fail_after = 2;
  const Json e = post(*api, "/v1/chat/completions", question(), 500);
  EXPECT_NE(e["error"]["message"].get<std::string>().find("the device is gone"), std::string::npos);
  const auto all = events(ask(*api, "POST", "/v1/chat/completions", question({{"stream", true}}).dump()).body);
  EXPECT_EQ(all.back(), "[DONE]");
  EXPECT_EQ(all[all.size() - 2]["error"]["type"], "server_error") << "told in the stream";
  s.engine.fail_after = -1;
  EXPECT_EQ(post(*api, "/v1/chat/completions", question())["choices"][0]["message"]["content"], s.answer);
}

}  // namespace
}  // namespace apus
