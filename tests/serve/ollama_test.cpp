// SPDX-License-Identifier: Apache-2.0
// Ollama's API without sockets.
#include <gtest/gtest.h>

#include <sstream>

#include "serve/ollama_request.h"
#include "tests/serve/test_server.h"

namespace apus {
namespace {
using test::ask;
using test::post;
using test::Served;

std::vector<Json> ollama_lines(const std::string& body) {
  std::vector<Json> out;
  std::istringstream in(body);
  for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
  return out;
}

const Json kHello = {{"model", "tiny:latest"}, {"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}};

TEST(ServeOllama, ChatWholeAndStreamed) {
  Served s;
  s.answer =
      "<think>\nhm\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>";
  const auto api = s.api();
  Json body = kHello;
  body["tools"] =
      Json::array({{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", {{"type", "object"}}}}}}});
  body["stream"] = false;
  const Json whole = post(*api, "/api/chat", body);
  EXPECT_EQ(whole["message"]["content"], "I look.");
  EXPECT_EQ(whole["message"]["thinking"], "hm");
  EXPECT_EQ(whole["message"]["tool_calls"][0]["function"], (Json{{"name", "f"}, {"arguments", {{"x", 1}}}}));
  EXPECT_EQ(whole["done"], true);
  EXPECT_EQ(whole["done_reason"], "stop");
  EXPECT_GT(whole["eval_count"], 5);
  body.erase("stream");  // streams are what is usual
  const HttpAnswer streamed = ask(*api, "POST", "/api/chat", body.dump());
  EXPECT_EQ(streamed.content_type, "application/x-ndjson");
  const auto lines = ollama_lines(streamed.body);
  std::string text, thoughts;
  Json calls;
  for (const Json& line : lines) {
    text += line["message"]["content"];
    thoughts += line["message"].value("thinking", "");
    if (line["message"].contains("tool_calls")) calls = line["message"]["tool_calls"];
    EXPECT_EQ(line["done"], &line == &lines.back());
  }
  EXPECT_EQ(text, "I look.");
  EXPECT_EQ(thoughts, "hm");
  EXPECT_EQ(calls, whole["message"]["tool_calls"]);
  EXPECT_EQ(lines.back()["prompt_eval_count"], whole["prompt_eval_count"]);
}

TEST(ServeOllama, GenerateAndLoad) {
  Served s;
  const auto api = s.api();
  const Json one = post(*api, "/api/generate", {{"model", "tiny"}, {"prompt", "hi"}, {"stream", false}});
  EXPECT_EQ(one["response"], s.answer);
  const Json raw = post(*api, "/api/generate", {{"model", "tiny"}, {"prompt", "hi"}, {"raw", true}, {"stream", false}});
  EXPECT_EQ(raw["response"], s.answer);
  EXPECT_LT(raw["prompt_eval_count"], one["prompt_eval_count"]);  // no chat template around it
  EXPECT_EQ(post(*api, "/api/generate", {{"model", "tiny"}})["done_reason"], "load");
  EXPECT_EQ(post(*api, "/api/generate", {{"model", "other"}}, 404)["error"].is_string(), true);
}

TEST(ServeOllama, WhatThereIs) {
  Served s;
  const auto api = s.api();
  EXPECT_EQ(Json::parse(ask(*api, "GET", "/api/tags").body)["models"][0]["name"], "tiny:latest");
  const Json shown = post(*api, "/api/show", {{"model", "tiny"}});
  EXPECT_EQ(shown["capabilities"], (Json{"completion", "tools", "thinking"}));
  EXPECT_GT(shown["model_info"]["general.context_length"], 0);
  const Json refused = post(*api, "/api/pull", {{"model", "x"}}, 501);
  EXPECT_NE(refused["error"].get<std::string>().find("--models"), std::string::npos);
}

TEST(ServeOllama, RequestsBecomeOpenAIs) {
  Json body = kHello;
  body["options"] = {{"num_predict", 7}, {"repeat_penalty", 1.1}, {"top_k", 3}, {"num_ctx", 99}, {"stop", {"a"}}};
  body["format"] = {{"type", "object"}};
  body["think"] = false;
  body["messages"][0]["images"] = Json::array({"QUJD"});
  const Json out = ollama_chat_request(body);
  EXPECT_EQ(out["model"], "tiny");
  EXPECT_EQ(out["max_tokens"], 7);
  EXPECT_EQ(out["repetition_penalty"], 1.1);
  EXPECT_EQ(out["top_k"], 3);
  EXPECT_EQ(out["stop"], Json{"a"});
  EXPECT_EQ(out["stream"], true);
  EXPECT_EQ(out["response_format"]["json_schema"]["schema"], body["format"]);
  EXPECT_EQ(out["chat_template_kwargs"]["enable_thinking"], false);
  EXPECT_EQ(out["messages"][0]["content"][0]["image_url"]["url"], "data:application/octet-stream;base64,QUJD");
  EXPECT_EQ(out["messages"][0]["content"][1]["text"], "hi");
  EXPECT_THROW(ollama_chat_request({{"format", "xml"}}), ApiError);
  EXPECT_THROW(ollama_generate_request({{"prompt", "x"}, {"context", {1}}}), ApiError);
}

}  // namespace
}  // namespace apus
