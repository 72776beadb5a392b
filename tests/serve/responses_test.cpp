// SPDX-License-Identifier: Apache-2.0
// OpenAI's Responses API: whole and streamed, tools, forms of answers, going on from what was stored.
#include <gtest/gtest.h>

#include "serve/response_store.h"
#include "tests/serve/test_server.h"

namespace apus {
namespace {
using test::ask;
using test::events;
using test::fits;
using test::post;
using test::Served;

const Json kWeather = {{"type", "function"},
                       {"name", "weather"},
                       {"parameters", {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}}}};

TEST(Responses, AText) {
  Served s;
  const auto api = s.api();
  const Json r = post(*api, "/v1/responses", {{"model", "tiny"}, {"input", "hi"}, {"instructions", "Be brief."}});
  EXPECT_EQ(r["object"], "response");
  EXPECT_TRUE(r["id"].get<std::string>().starts_with("resp_"));
  EXPECT_EQ(r["status"], "completed");
  ASSERT_EQ(r["output"].size(), 1u);
  EXPECT_EQ(r["output"][0]["type"], "message");
  EXPECT_EQ(r["output"][0]["content"][0]["type"], "output_text");
  EXPECT_EQ(r["output"][0]["content"][0]["text"], "Hello, world!");
  const auto prompt = s.tokenizer->encode(
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(s.engine.seen()[0].prompt, prompt);
  EXPECT_EQ(r["usage"]["input_tokens"], prompt.size());
  EXPECT_EQ(r["usage"]["output_tokens"], s.tokenizer->encode(s.answer).size() + 1);
  EXPECT_EQ(r["instructions"], "Be brief.");
}

TEST(Responses, GoesOnFromAStoredOne) {
  Served s;
  const auto api = s.api();
  const Json first = post(*api, "/v1/responses", {{"input", "one"}, {"instructions", "not kept"}});
  const Json second = post(*api, "/v1/responses", {{"input", "two"}, {"previous_response_id", first["id"]}});
  EXPECT_EQ(s.engine.seen()[1].prompt,
            s.tokenizer->encode("<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\nHello, world!<|im_end|>\n"
                                "<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_EQ(second["previous_response_id"], first["id"]);
  const std::string path = "/v1/responses/" + first["id"].get<std::string>();
  EXPECT_EQ(Json::parse(ask(*api, "GET", path).body), first);
  EXPECT_EQ(ask(*api, "DELETE", path).status, 200);
  EXPECT_EQ(ask(*api, "GET", path).status, 404);
  const Json gone =
      post(*api, "/v1/responses", {{"input", "three"}, {"previous_response_id", first["id"]}}, /*status=*/404);
  EXPECT_EQ(gone["error"]["param"], "previous_response_id");
  const Json unkept = post(*api, "/v1/responses", {{"input", "one"}, {"store", false}});
  EXPECT_EQ(ask(*api, "GET", "/v1/responses/" + unkept["id"].get<std::string>()).status, 404);
}

TEST(Responses, StreamsEveryStep) {
  Served s;
  const auto api = s.api();
  const HttpAnswer answer = ask(*api, "POST", "/v1/responses", R"({"input": "hi", "stream": true})");
  EXPECT_EQ(answer.content_type, "text/event-stream");
  const auto all = events(answer.body);
  std::string text;
  std::vector<std::string> types;
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i]["sequence_number"], i);
    const std::string type = all[i]["type"];
    EXPECT_NE(answer.body.find("event: " + type + "\n"), std::string::npos);
    if (type == "response.output_text.delta")
      text += all[i]["delta"].get<std::string>();
    else
      types.push_back(type);
  }
  EXPECT_EQ(text, "Hello, world!");
  EXPECT_EQ(types, (std::vector<std::string>{"response.created", "response.in_progress", "response.output_item.added",
                                             "response.content_part.added", "response.output_text.done",
                                             "response.content_part.done", "response.output_item.done",
                                             "response.completed"}));
  EXPECT_EQ(all.back()["response"]["output"][0]["content"][0]["text"], text);
  EXPECT_GT(all.back()["response"]["usage"]["output_tokens"], 0);
}

TEST(Responses, CallsAndTheirResults) {
  Served s;
  s.answer = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>";
  const auto api = s.api();
  const Json r = post(*api, "/v1/responses", {{"input", "hi"}, {"tools", {kWeather}}, {"tool_choice", "required"}});
  ASSERT_EQ(r["output"].size(), 1u) << r;
  const Json call = r["output"][0];
  EXPECT_EQ(call["type"], "function_call");
  EXPECT_EQ(call["name"], "weather");
  EXPECT_EQ(Json::parse(call["arguments"].get<std::string>()), (Json{{"city", "Bern"}}));
  EXPECT_TRUE(s.engine.seen()[0].constraint);
  const auto streamed = events(
      ask(*api, "POST", "/v1/responses", json_text({{"input", "hi"}, {"tools", {kWeather}}, {"stream", true}})).body);
  std::string arguments;
  for (const Json& e : streamed)
    if (e["type"] == "response.function_call_arguments.delta") arguments += e["delta"].get<std::string>();
  EXPECT_EQ(Json::parse(arguments), (Json{{"city", "Bern"}}));
  s.answer = "Sunny.";
  const Json input = {{{"role", "user"}, {"content", {{{"type", "input_text"}, {"text", "hi"}}}}},
                      call,
                      {{"type", "function_call_output"}, {"call_id", call["call_id"]}, {"output", "sun"}}};
  EXPECT_EQ(post(*api, "/v1/responses", {{"input", input}, {"tools", {kWeather}}})["output"][0]["content"][0]["text"],
            "Sunny.");
  const std::string prompt = s.tokenizer->decode(s.engine.seen()[2].prompt);
  EXPECT_NE(prompt.find("('city', 'Bern')"), std::string::npos) << prompt;
  EXPECT_NE(prompt.find("<|im_start|>tool\nsun"), std::string::npos) << prompt;
}

TEST(Responses, FormsAndLength) {
  Served s;
  const auto api = s.api();
  const Json schema = {{"type", "object"}, {"properties", {{"a", {{"type", "integer"}}}}}, {"required", {"a"}}};
  const Json cut = post(*api, "/v1/responses",
                        {{"input", "hi"},
                         {"max_output_tokens", 1},
                         {"text", {{"format", {{"type", "json_schema"}, {"name", "n"}, {"schema", schema}}}}}});
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_TRUE(fits(s, s.engine.seen()[0], R"({"a":1})"));
  EXPECT_FALSE(fits(s, s.engine.seen()[0], "{}"));
}

TEST(Responses, RefusesWhatItCannotDo) {
  Served s;
  const auto api = s.api();
  const std::vector<std::pair<Json, const char*>> cases = {
      {Json::object(), "input"},
      {{{"input", "hi"}, {"background", true}}, "background"},
      {{{"input", "hi"}, {"conversation", "c"}}, "conversation"},
      {{{"input", "hi"}, {"truncation", "auto"}}, "truncation"},
      {{{"input", "hi"}, {"tools", {{{"type", "web_search"}}}}}, "tools[0].type"},
      {{{"input", "hi"}, {"include", {"file_search_call.results"}}}, "include"},
      {{{"input", {{{"type", "item_reference"}, {"id", "x"}}}}}, "input[0].type"},
      {{{"input", "hi"}, {"text", {{"format", {{"type", "json_schema"}}}}}}, "text.format.schema"},
      {{{"input", "hi"}, {"text", {{"formt", 1}}}}, "text.formt"}};
  for (const auto& [body, param] : cases)
    EXPECT_EQ(post(*api, "/v1/responses", body, 400)["error"]["param"], param) << body;
}

TEST(Responses, TheStoreForgetsTheOldest) {
  ResponseStore store(1000);
  for (int i = 0; i < 10; ++i) store.put(str("r", i), {std::string(200, 'x'), Json::array()});
  EXPECT_FALSE(store.get("r0"));
  ASSERT_TRUE(store.get("r9"));
  EXPECT_EQ(store.get("r9")->response, std::string(200, 'x'));
  EXPECT_TRUE(store.erase("r9"));
  EXPECT_FALSE(store.erase("r9"));
}

}  // namespace
}  // namespace apus
