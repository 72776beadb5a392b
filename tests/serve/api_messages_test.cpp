// SPDX-License-Identifier: Apache-2.0
// Anthropic's messages without sockets.
#include <gtest/gtest.h>

#include "tests/serve/test_server.h"

namespace apus {
namespace {
using test::ask;
using test::events;
using test::post;
using test::Served;

TEST(ServeApi, AnthropicMessages) {
  Served s;
  s.answer =
      "<think>\nhm\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>";
  const auto api = s.api();
  Json body = {{"model", "tiny"},
               {"max_tokens", 500},
               {"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})},
               {"tools", Json::array({{{"name", "f"}, {"input_schema", {{"type", "object"}}}}})}};
  const Json a = post(*api, "/v1/messages", body);
  EXPECT_EQ(a["type"], "message");
  EXPECT_EQ(a["stop_reason"], "tool_use");
  ASSERT_EQ(a["content"].size(), 3u);
  EXPECT_EQ(a["content"][0]["thinking"], "hm");
  EXPECT_EQ(a["content"][1]["text"], "I look.");
  EXPECT_EQ(a["content"][2]["input"], Json({{"x", 1}}));
  EXPECT_GT(a["usage"]["output_tokens"], 5);
  body["stream"] = true;
  const auto all = events(ask(*api, "POST", "/v1/messages", body.dump()).body);
  EXPECT_EQ(all[0]["type"], "message_start");
  EXPECT_EQ(all.back()["type"], "message_stop");
  std::vector<std::string> blocks(3), kinds;
  int64_t open = -1;
  for (const auto& e : all) {
    if (e["type"] == "content_block_start") {
      EXPECT_EQ(open, -1);
      open = e["index"];
      kinds.push_back(e["content_block"]["type"]);
    } else if (e["type"] == "content_block_delta") {
      EXPECT_EQ(e["index"], open);
      for (const char* key : {"text", "thinking", "partial_json"})
        if (e["delta"].contains(key)) blocks[static_cast<size_t>(open)] += e["delta"][key].get<std::string>();
    } else if (e["type"] == "content_block_stop") {
      open = -1;
    }
  }
  EXPECT_EQ(kinds, (std::vector<std::string>{"thinking", "text", "tool_use"}));
  EXPECT_EQ(blocks[1], "I look.");
  EXPECT_EQ(Json::parse(blocks[2]), Json({{"x", 1}}));
  EXPECT_EQ(all[all.size() - 2]["delta"]["stop_reason"], "tool_use");
  EXPECT_GT(post(*api, "/v1/messages/count_tokens", {{"messages", body["messages"]}})["input_tokens"], 3);
  EXPECT_EQ(post(*api, "/v1/messages/count_tokens", {{"model", "other"}, {"messages", body["messages"]}},
                 404)["error"]["type"],
            "not_found_error");
  const Json e = post(*api, "/v1/messages", {{"model", "tiny"}}, 400);
  EXPECT_EQ(e["type"], "error");
  EXPECT_EQ(e["error"]["type"], "invalid_request_error");
  s.answer = "one two three";
  EXPECT_EQ(post(*api, "/v1/messages",
                 {{"max_tokens", 9}, {"stop_sequences", {"two"}}, {"messages", body["messages"]}})["stop_sequence"],
            "two");
}

}  // namespace
}  // namespace apus
