// SPDX-License-Identifier: Apache-2.0
// Keys of several people: limits, usage, a file that changes; and the server that asks for them.
#include "serve/key_book.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/folder.h"
#include "tests/paths.h"
#include "tests/refusal.h"
#include "tests/serve/test_server.h"

namespace apus {
namespace {

std::filesystem::path keys_file(const std::filesystem::path& dir, const std::string& text) {
  write_file_atomic(dir / "keys.json", text);
  return dir / "keys.json";
}
constexpr const char* kTwo =
    R"({"alice": "key-of-alice", "bob": {"key": "key-of-bob", "requests_per_minute": 2, "tokens_per_minute": 60}})";

TEST(KeyBook, AnAllowanceComesBackWithTime) {
  Allowance a(60);  // one a second
  for (int i = 0; i < 60; ++i) {
    EXPECT_EQ(a.wait_for(1, 100), 0);
    a.take(1, 100);
  }
  EXPECT_DOUBLE_EQ(a.wait_for(1, 100), 1);
  EXPECT_EQ(a.wait_for(1, 101), 0);
  a.take(31, 101);  // a debt of 30
  EXPECT_DOUBLE_EQ(a.wait_for(1, 101), 31);
  EXPECT_EQ(a.wait_for(60, 1000), 0) << "saved up for a minute, not for longer";
  a.take(60, 1000);
  EXPECT_GT(a.wait_for(1, 1000), 0);
  Allowance any;
  any.take(1e9, 0);
  EXPECT_EQ(any.wait_for(1e9, 0), 0);
}

TEST(KeyBook, WhatIsWrongWithAFileIsSaid) {
  const test::Folder folder;
  const std::filesystem::path dir = folder.path;
  const auto why = [&](const std::string& text) {
    return test::refusal(Fault::Usage, [&] { KeyBook(keys_file(dir, text)); });
  };
  test::expect_says(why("[]"), "must be a JSON object");
  test::expect_says(why(R"({"a b": "12345678"})"), "the name 'a b'");
  test::expect_says(why(R"({"a": "short"})"), "8 characters");
  test::expect_says(why(R"({"a": "12345678", "b": "12345678"})"), "somebody else has this key");
  test::expect_says(why(R"({"a": {"key": "12345678", "rpm": 1}})"), "'rpm' is not possible");
  test::expect_says(why(R"({"a": {"key": "12345678", "tokens_per_minute": 0}})"), "above 0");
}

TEST(KeyBook, CountsLimitsAndReadsAgain) {
  const test::Folder folder;
  const std::filesystem::path dir = folder.path;
  KeyBook book(keys_file(dir, kTwo));
  EXPECT_EQ(book.holder("key-of-bob"), "bob");
  EXPECT_EQ(book.holder("key-of-bo"), std::nullopt);
  for (int i = 0; i < 9; ++i) book.admit("alice", 0);
  book.admit("bob", 0), book.admit("bob", 0);
  try {
    book.admit("bob", 0);
    ADD_FAILURE() << "a third request in a minute of two";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 429);
    EXPECT_EQ(error.retry_after, 30);
  }
  book.admit("bob", 30);
  book.had("bob", 50, 70, 30);  // twice what a minute has
  try {
    book.admit("bob", 60);
    ADD_FAILURE() << "half of the debt is left";
  } catch (const ApiError& error) {
    test::expect_says(error.what(), "60 tokens a minute");
    EXPECT_EQ(error.retry_after, 31);
  }
  book.admit("bob", 91);
  EXPECT_EQ(book.usage("bob")[0].dump(),
            R"({"name":"bob","requests":4,"refused":2,"prompt_tokens":50,"completion_tokens":70})");
  EXPECT_NE(book.prometheus().find("apus_key_requests_total{key=\"alice\"} 9\n"), std::string::npos);

  // What somebody has had stays with the name; a file that is wrong changes nothing.
  keys_file(dir, R"({"bob": "another-key", "carol": "key-of-carol"})");
  std::filesystem::last_write_time(dir / "keys.json",
                                   std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  book.look_again();
  EXPECT_EQ(book.holder("key-of-alice"), std::nullopt);
  EXPECT_EQ(book.holder("another-key"), "bob");
  EXPECT_EQ(book.usage("bob")[0]["requests"], 4);
  keys_file(dir, "nothing");
  std::filesystem::last_write_time(dir / "keys.json",
                                   std::filesystem::file_time_type::clock::now() + std::chrono::hours(2));
  book.look_again();
  EXPECT_EQ(book.holder("key-of-carol"), "carol");
}

TEST(ServeApi, SeveralPeopleHaveKeysLimitsAndUsage) {
  const test::Folder folder;
  const std::filesystem::path dir = folder.path;
  test::Served s;
  const auto keys = std::make_shared<KeyBook>(keys_file(dir, kTwo));
  const auto api = s.api({.access = {.api_key = "secret", .keys = keys}, .verbose = false});
  const auto as = [](const std::string& key) {
    return std::map<std::string, std::string>{{"authorization", "Bearer " + key}};
  };
  const std::string body = test::question().dump();
  const auto chat = [&](const std::string& key) {
    return test::ask(*api, "POST", "/v1/chat/completions", body, as(key));
  };
  EXPECT_EQ(chat("key-of-alice").status, 200);
  EXPECT_EQ(chat("key-of-bob").status, 200);
  EXPECT_EQ(chat("nobody's").status, 401);
  EXPECT_EQ(chat("key-of-bob").status, 200);
  const HttpAnswer late = chat("key-of-bob");
  EXPECT_EQ(late.status, 429);
  EXPECT_EQ(Json::parse(late.body)["error"]["code"], "rate_limit_exceeded");
  EXPECT_EQ(chat("secret").status, 200) << "the administrator has no limits";
  const auto usage = [&](const std::string& key) {
    return Json::parse(test::ask(*api, "GET", "/usage", "", as(key)).body)["data"];
  };
  EXPECT_EQ(usage("secret").size(), 2u);
  ASSERT_EQ(usage("key-of-bob").size(), 1u);
  EXPECT_EQ(usage("key-of-bob")[0]["requests"], 2);
  EXPECT_GT(usage("key-of-bob")[0]["completion_tokens"], 0);
  const HttpAnswer adapter =
      test::ask(*api, "POST", "/v1/load_lora_adapter", R"({"lora_name": "a", "lora_path": "b"})", as("key-of-alice"));
  EXPECT_EQ(adapter.status, 403);
}

// The board for Grafana asks for figures that there are.
TEST(ServeApi, TheBoardNamesFiguresOfThisServer) {
  const test::Folder folder;
  test::Served s;
  const auto keys = std::make_shared<KeyBook>(keys_file(folder.path, kTwo));
  const auto api = s.api({.access = {.api_key = "secret", .keys = keys}, .verbose = false});
  const std::string figures = test::ask(*api, "GET", "/metrics", "", {{"authorization", "Bearer secret"}}).body;
  const std::string board = read_file(test::source_dir() / "packages/grafana.json", 1 << 20);
  size_t names = 0;
  for (size_t at = 0; (at = board.find("apus_", at)) != std::string::npos; ++names) {
    const size_t end = board.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", at);
    EXPECT_NE(figures.find(board.substr(at, end - at)), std::string::npos) << board.substr(at, end - at);
    at = end;
  }
  EXPECT_GT(names, 20u);
}

}  // namespace
}  // namespace apus
