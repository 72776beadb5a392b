// SPDX-License-Identifier: Apache-2.0
// Finer points of answers: failed rows of /infer/, counts of thoughts, echoes in streams, strict tools.
#include <gtest/gtest.h>

#include "serve/openai_answer.h"
#include "tests/serve/test_server.h"

namespace apus {
namespace {
using test::ask;
using test::events;
using test::fits;
using test::post;
using test::question;
using test::Served;

Json rows(const std::vector<Json>& list, const Json& config = Json::object()) {
  return {{"infer_requests", list}, {"request_config", config}};
}

TEST(ServeAnswers, AFailedRowOfInferStandsInItsPlace) {
  Served s;
  const auto api = s.api();
  s.engine.fail_after = 1;
  s.engine.fail_only = 2;
  Json a = post(*api, "/infer/",
                rows({question(), question(), question({{"temperature", -1}}), Json("no object"), question()}));
  ASSERT_EQ(a.size(), 5u);
  for (const size_t i : {size_t{0}, size_t{4}}) EXPECT_EQ(a[i]["choices"][0]["message"]["content"], s.answer);
  EXPECT_EQ(a[1]["error"]["type"], "server_error");
  EXPECT_NE(a[1]["error"]["message"].get<std::string>().find("the device is gone"), std::string::npos);
  EXPECT_EQ(a[2]["error"]["param"], "temperature");
  EXPECT_EQ(a[3]["error"]["param"], "infer_requests[3]");
  EXPECT_TRUE(s.engine.becomes_idle()) << "the others are not cut off";
}

TEST(ServeAnswers, WhenAllRowsFailInferDoes) {
  Served s;
  const auto api = s.api();
  EXPECT_EQ(post(*api, "/infer/", rows({question(), question()}, {{"top_p", 7}}), 400)["error"]["param"], "top_p");
  EXPECT_EQ(post(*api, "/infer/", rows({question({{"model", "other"}})}), 404)["error"]["code"], "model_not_found");
  s.engine.waiting = 10;
  const HttpAnswer busy = ask(*api, "POST", "/infer/", json_text(rows({question()})));
  EXPECT_EQ(busy.status, 429);
  EXPECT_EQ(busy.headers[0].first, "Retry-After");
  s.engine.waiting = 0;
  s.engine.fail_after = 1;
  EXPECT_EQ(post(*api, "/infer/", rows({question(), question({{"temperature", -1}})}), 500)["error"]["type"],
            "server_error")
      << "the gravest";
}

TEST(ServeAnswers, GuessesAreCountedWhereThereAreAny) {
  const Json plain = usage_json({.prompt = 3, .completion = 5})["completion_tokens_details"],
             guessed =
                 usage_json({.prompt = 3, .completion = 5, .drafted = 6, .accepted = 4})["completion_tokens_details"];
  EXPECT_FALSE(plain.contains("accepted_prediction_tokens"));
  EXPECT_EQ(guessed["accepted_prediction_tokens"], 4);
  EXPECT_EQ(guessed["rejected_prediction_tokens"], 2);
}

TEST(ServeAnswers, ThoughtsAreCounted) {
  Served s;
  s.answer = "<think>\nlet me see\n</think>\n\nYes.";
  const auto api = s.api();
  const auto thoughts = static_cast<int64_t>(s.tokenizer->encode("<think>\nlet me see\n</think>").size());
  const Json a = post(*api, "/v1/chat/completions", question());
  EXPECT_EQ(a["usage"]["completion_tokens_details"]["reasoning_tokens"], thoughts);
  EXPECT_GT(a["usage"]["completion_tokens"], thoughts + 1);
  const auto all = events(ask(*api, "POST", "/v1/chat/completions",
                              json_text(question({{"stream", true}, {"stream_options", {{"include_usage", true}}}})))
                              .body);
  EXPECT_EQ(all[all.size() - 2]["usage"], a["usage"]);
  EXPECT_EQ(post(*api, "/v1/chat/completions",
                 question({{"separate_reasoning", false}}))["usage"]["completion_tokens_details"]["reasoning_tokens"],
            0);
  EXPECT_EQ(
      post(*api, "/v1/messages", question({{"max_tokens", 100}}))["usage"]["output_tokens_details"]["thinking_tokens"],
      thoughts);
  s.answer = "let me see</think>Yes.";
  EXPECT_EQ(post(*api, "/v1/chat/completions",
                 question({{"chat_template_kwargs",
                            {{"enable_thinking", true}}}}))["usage"]["completion_tokens_details"]["reasoning_tokens"],
            s.tokenizer->encode("let me see</think>").size());
}

// What the page draws: of the content alone, once it is whole.
TEST(ServeAnswers, BoxesStandBesideTheAnswerWhereTheyAreWanted) {
  const auto form = [] {
    AnswerForm f;
    f.boxes = [](const std::string& content) { return Json::array({content}); };
    return f;
  };
  const auto pieces = [](AnswerWriter& writer) {
    writer.begin({});
    writer.piece({.index = 0, .deltas = {{.kind = ChatDelta::Kind::Content, .text = "(1,2),"}}}, {});
    writer.piece({.index = 0, .deltas = {{.kind = ChatDelta::Kind::Content, .text = "(3,4)"}}}, {});
    writer.piece({.index = 0, .finish = Finish::Stop}, {});
    writer.end({});
  };
  Json whole;
  pieces(*whole_chat(form(), {[&](Json answer) { whole = std::move(answer); }, [](const ApiError&) { FAIL(); }}));
  EXPECT_EQ(whole["choices"][0]["message"]["boxes"], Json::array({"(1,2),(3,4)"}));
  pieces(*whole_chat({}, {[&](Json answer) { whole = std::move(answer); }, [](const ApiError&) { FAIL(); }}));
  EXPECT_FALSE(whole["choices"][0]["message"].contains("boxes"));
}

TEST(ServeAnswers, AnEchoInAStream) {
  Served s;
  const auto api = s.api();
  const auto stream = [&](Json body) {
    body.update({{"prompt", Json::array({"a b", "c"})}, {"echo", true}, {"logprobs", 1}});
    const Json whole = post(*api, "/v1/completions", body);
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    const auto all = events(ask(*api, "POST", "/v1/completions", json_text(body)).body);
    Json parts = Json::array({Json::object(), Json::object()});
    for (auto& p : parts) p = {{"text", ""}, {"tokens", Json::array()}, {"text_offset", Json::array()}};
    for (const auto& e : all)
      if (e.is_object())
        for (const auto& c : e["choices"]) {
          Json& p = parts[c["index"].get<size_t>()];
          p["text"] = p["text"].get<std::string>() + c["text"].get<std::string>();
          for (const char* key : {"tokens", "text_offset"})
            for (const auto& x : c["logprobs"][key]) p[key].push_back(x);
          if (!c["finish_reason"].is_null()) p["finish_reason"] = c["finish_reason"];
        }
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(parts[i]["text"], whole["choices"][i]["text"]);
      EXPECT_EQ(parts[i]["finish_reason"], whole["choices"][i]["finish_reason"]);
      for (const char* key : {"tokens", "text_offset"}) EXPECT_EQ(parts[i][key], whole["choices"][i]["logprobs"][key]);
    }
    EXPECT_EQ(all[all.size() - 2]["usage"], whole["usage"]);
    return whole;
  };
  EXPECT_EQ(stream({{"max_tokens", 9}})["choices"][0]["text"], "a b" + s.answer);
  EXPECT_EQ(stream({{"max_tokens", 0}})["choices"][1]["text"], "c");
}

TEST(ServeAnswers, UsualLengthsAndNames) {
  Served s;
  for (int i = 0; i < 60; ++i) s.answer += " more";
  const auto api = s.api();
  const Json a = post(*api, "/v1/completions", {{"prompt", "x"}});
  EXPECT_EQ(a["usage"]["completion_tokens"], 16) << "OpenAI's default for raw text";
  EXPECT_EQ(a["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(post(*api, "/v1/chat/completions", question())["choices"][0]["finish_reason"], "stop");
  const std::string why = post(*api, "/v1/completions", {{"prompt", "x"}, {"model", "other"}}, 404)["error"]["message"];
  EXPECT_NE(why.find("served are: tiny"), std::string::npos) << why;
}

const Json kStrict = Json::parse(
    R"([{"type": "function", "function": {"name": "f", "strict": true, "parameters": {"type": "object",
         "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": false}}}])");

TEST(ServeAnswers, StrictToolsAreGuidedWhenTheModelCalls) {
  Served s;
  const auto api = s.api();
  const auto request = [&](const Json& more) {
    post(*api, "/v1/chat/completions", question(more));
    return s.engine.seen().back();
  };
  const std::string good = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>",
                    bad = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"1\"}}\n</tool_call>";
  EngineRequest r = request({{"tools", kStrict}});
  for (const std::string& text : {std::string("Just talk."), good, "I call. " + good, "<think>" + bad + "</think>No."})
    EXPECT_TRUE(fits(s, r, text)) << text;
  for (const std::string& text : {bad, "I call. " + bad, "<think></think>" + bad})
    EXPECT_FALSE(fits(s, r, text)) << text;
  r = request({{"tools", kStrict}, {"response_format", {{"type", "json_object"}}}});
  EXPECT_TRUE(fits(s, r, "{\"a\": 1}")) << "a form of the answer";
  EXPECT_TRUE(fits(s, r, good)) << "leaves calls possible";
  EXPECT_FALSE(fits(s, r, bad));
  EXPECT_FALSE(fits(s, r, "Just talk."));
  Json odd = kStrict;
  odd[0]["function"]["parameters"]["properties"]["x"]["unknownWord"] = 3;
  const Json e = post(*api, "/v1/chat/completions", question({{"tools", odd}}), 400)["error"];
  EXPECT_EQ(e["param"], "tools");
  odd[0]["function"]["strict"] = false;
  post(*api, "/v1/chat/completions", question({{"tools", odd}}));
  EXPECT_FALSE(s.engine.seen().back().constraint);
  odd[0]["function"]["strict"] = "yes";
  EXPECT_EQ(post(*api, "/v1/chat/completions", question({{"tools", odd}}), 400)["error"]["param"],
            "tools[0].function.strict");
  const Json tool = {{"name", "f"}, {"strict", true}, {"input_schema", kStrict[0]["function"]["parameters"]}};
  post(*api, "/v1/messages", question({{"max_tokens", 9}, {"tools", Json::array({tool})}}));
  EXPECT_FALSE(fits(s, s.engine.seen().back(), bad)) << "Anthropic's form says it too";
}

}  // namespace
}  // namespace apus
