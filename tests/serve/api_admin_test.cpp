// SPDX-License-Identifier: Apache-2.0
// The API without sockets, beside its answers:
// keys, the queue, draining, who leaves, adapters, sleep, origins, the log.
#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/eventually.h"
#include "tests/serve/test_server.h"

namespace apus {
namespace {
using test::ask;
using test::post;
using test::question;
using test::Served;

TEST(ServeApi, KeysQueueAndDraining) {
  Served s;
  const auto api = s.api({.access = {.api_key = "secret"}, .verbose = false});
  const std::string body = question().dump();
  HttpAnswer a = ask(*api, "POST", "/v1/chat/completions", body);
  EXPECT_EQ(a.status, 401);
  EXPECT_EQ(Json::parse(a.body)["error"]["code"], "invalid_api_key");
  EXPECT_EQ(ask(*api, "POST", "/v1/chat/completions", body, {{"authorization", "Bearer secre"}}).status, 401);
  for (const char* header : {"Bearer secret", "bearer secret", "BEARER  secret"})
    EXPECT_EQ(ask(*api, "POST", "/v1/chat/completions", body, {{"authorization", header}}).status, 200) << header;
  EXPECT_EQ(ask(*api, "POST", "/v1/messages", "{}", {{"x-api-key", "secret"}}).status, 400);
  for (const char* path : {"/v1/models", "/metrics"}) EXPECT_EQ(ask(*api, "GET", path).status, 401) << path;
  for (const char* path : {"/tokenize", "/infer/", "/v1/load_lora_adapter"})
    EXPECT_EQ(ask(*api, "POST", path, "{}").status, 401) << path;
  for (const char* path : {"/health", "/ping"}) EXPECT_EQ(ask(*api, "GET", path).status, 200) << path;
  s.engine.waiting = 10;
  a = ask(*api, "POST", "/v1/chat/completions", body, {{"authorization", "Bearer secret"}});
  EXPECT_EQ(a.status, 429);
  EXPECT_EQ(a.headers[0].first, "Retry-After");
  s.engine.waiting = 0;
  api->drain();
  EXPECT_EQ(ask(*api, "POST", "/v1/chat/completions", body, {{"authorization", "Bearer secret"}}).status, 503);
  EXPECT_EQ(ask(*api, "GET", "/health").status, 503);
}

TEST(ServeApi, WhoLeavesAndWhoIsCutOff) {
  Served s;
  const auto api = s.api();
  s.engine.hold = true;
  const auto start = [&](bool stream) {
    auto call = std::make_shared<HttpCall>();
    call->method = "POST";
    call->path = "/v1/chat/completions";
    call->body = question({{"stream", stream}, {"n", 2}}).dump();
    auto reply = std::make_shared<test::Waiting>();
    const size_t before = s.engine.seen().size();
    api->serve(call, reply);
    EXPECT_TRUE(s.engine.has_seen(before + 2));
    return reply;
  };
  const auto gone = start(true);
  EXPECT_EQ(s.engine.running(), 2);
  gone->go_away();
  EXPECT_TRUE(s.engine.becomes_idle());
  EXPECT_EQ(s.engine.cancels, 2);
  const auto streamed = start(true), whole = start(false);
  EXPECT_TRUE(test::eventually([&] { return api->active() == 2; })) << "who left is no longer counted";
  api->stop_all();
  EXPECT_EQ(whole->wait().status, 503);
  EXPECT_NE(streamed->wait().body.find("service_unavailable_error"), std::string::npos);
  EXPECT_TRUE(s.engine.becomes_idle());
  EXPECT_TRUE(test::eventually([&] { return api->active() == 0; }));
}

TEST(ServeApi, Adapters) {
  Served s;
  const auto open = s.api();
  EXPECT_EQ(ask(*open, "POST", "/v1/load_lora_adapter", R"({"lora_name": "a", "lora_path": "/x"})").status, 403)
      << "nobody names folders without a key";
  const auto api = s.api({.access = {.api_key = "k"}, .verbose = false});
  const std::map<std::string, std::string> key = {{"x-api-key", "k"}};
  EXPECT_EQ(ask(*api, "POST", "/v1/load_lora_adapter", R"({"lora_name": "a", "lora_path": "dir"})", key).status, 200);
  EXPECT_EQ(ask(*api, "POST", "/v1/load_lora_adapter", R"({"lora_name": "a", "lora_path": "dir"})", key).status, 400);
  EXPECT_EQ(ask(*api, "POST", "/v1/load_lora_adapter", R"({"lora_name": "b", "lora_path": "missing"})", key).status,
            422);
  EXPECT_EQ(ask(*api, "POST", "/v1/load_lora_adapter", R"({"lora_name": "a\nb", "lora_path": "dir"})", key).status,
            400);
  EXPECT_EQ(Json::parse(ask(*api, "GET", "/v1/models", "", key).body)["data"][1]["parent"], "tiny");
  EXPECT_EQ(ask(*api, "POST", "/v1/chat/completions", question({{"model", "a"}}).dump(), key).status, 200);
  EXPECT_EQ(s.engine.seen().back().adapter, "a");
  EXPECT_EQ(ask(*api, "POST", "/v1/unload_lora_adapter", R"({"lora_name": "a"})", key).status, 200);
  EXPECT_EQ(ask(*api, "POST", "/v1/unload_lora_adapter", R"({"lora_name": "a"})", key).status, 404);
}

TEST(ServeAdmin, TheOnlyAdapterAnswersRequestsThatNameNoModelAndTheBaseItsOwnName) {
  Served s;
  s.engine.load_adapter("skill", "dir");
  ServiceSpec spec = s.service();
  spec.usual = "skill", spec.aliases = {"/models/tiny"};
  const auto api = std::make_shared<Api>(ApiSpec{.verbose = false}, spec, s.workers);
  const auto asked = [&](const Json& more) {
    Json body = question();
    body.erase("model"), body.update(more);
    const Json answer = post(*api, "/v1/chat/completions", body);
    return std::pair(s.engine.seen().back().adapter, answer["model"].get<std::string>());
  };
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(asked(Json::object()), Pair("skill", "skill"));
  EXPECT_EQ(asked({{"model", "tiny"}}), Pair("", "tiny"));
  EXPECT_EQ(asked({{"model", "/models/tiny"}}).first, "") << "the folder of the base is the base";
  s.engine.unload_adapter("skill");
  EXPECT_EQ(asked(Json::object()), Pair("", "tiny")) << "when it is gone";
}

TEST(ServeAdmin, WordsBehindTheVocabularyComeWithMediaAlone) {
  Served s;
  const Service service(s.service());
  const std::vector<int32_t> ids{5, 1 << 20};
  EXPECT_THROW(service.check_ids(ids, "messages"), ApiError);
  EXPECT_NO_THROW(service.check_ids(ids, "messages", /*media=*/true));
  EXPECT_THROW(service.check_ids({(1 << 20) + 8}, "messages", /*media=*/true), ApiError);
}

TEST(ServeAdmin, ModelsTellHowTheySampleWhenNobodySaysIt) {
  Served s;
  ServiceSpec spec = s.service();
  spec.checkpoint.do_sample = true, spec.checkpoint.temperature = 0.6, spec.flags.top_p = 0.9;
  const auto api = std::make_shared<Api>(ApiSpec{.verbose = false}, spec, s.workers);
  const Json usual = Json::parse(ask(*api, "GET", "/v1/models").body)["data"][0]["sampling"];
  EXPECT_EQ(usual["temperature"], 0.6);
  EXPECT_EQ(usual["top_p"], 0.9);
}

TEST(ServeApi, Sleep) {
  Served s;
  const auto open = s.api();
  EXPECT_EQ(ask(*open, "POST", "/sleep").status, 403) << "nobody stops everybody's answers without a key";
  EXPECT_EQ(ask(*open, "GET", "/is_sleeping").body, R"({"is_sleeping":false})");
  const auto api = s.api({.access = {.api_key = "k"}, .verbose = false});
  const std::map<std::string, std::string> key = {{"x-api-key", "k"}};
  for (const char* path : {"/sleep", "/wake_up"}) EXPECT_EQ(ask(*api, "POST", path).status, 401) << path;
  EXPECT_EQ(ask(*api, "GET", "/is_sleeping").status, 401);
  const auto begin = [&] {
    auto call = std::make_shared<HttpCall>();
    call->method = "POST";
    call->path = "/v1/chat/completions";
    call->body = question().dump();
    auto reply = std::make_shared<test::Waiting>();
    api->serve(call, reply);
    return reply;
  };
  s.engine.hold = true;
  const auto under_way = begin();
  ASSERT_TRUE(s.engine.has_seen(1));
  EXPECT_EQ(ask(*api, "POST", "/sleep", "", key, "level=1").status, 200);
  EXPECT_EQ(ask(*api, "GET", "/is_sleeping", "", key).body, R"({"is_sleeping":true})");
  const HttpAnswer refused = ask(*api, "POST", "/v1/chat/completions", question().dump(), key);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers[0].first, "Retry-After");
  for (const char* path : {"/v1/completions", "/v1/embeddings", "/v1/messages", "/infer/", "/v1/load_lora_adapter"})
    EXPECT_EQ(ask(*api, "POST", path, "{}", key).status, 503) << path;
  EXPECT_EQ(ask(*api, "GET", "/health").status, 200);
  EXPECT_EQ(ask(*api, "GET", "/v1/models", "", key).status, 200);
  EXPECT_EQ(ask(*api, "POST", "/sleep", "", key, "level=2").status, 400) << "this engine cannot";
  EXPECT_EQ(ask(*api, "POST", "/sleep", "", key, "level=3").status, 400);
  EXPECT_EQ(ask(*api, "GET", "/is_sleeping", "", key).body, R"({"is_sleeping":true})") << "still";
  EXPECT_EQ(ask(*api, "POST", "/wake_up", "", key).status, 200);
  EXPECT_EQ(under_way->wait().status, 200) << "it waited";
  EXPECT_EQ(ask(*api, "GET", "/is_sleeping", "", key).body, R"({"is_sleeping":false})");
  EXPECT_EQ(ask(*api, "POST", "/v1/chat/completions", question().dump(), key).status, 200);
}

TEST(ServeApi, OriginsAndLogs) {
  Served s;
  EXPECT_EQ(ask(*s.api(), "OPTIONS", "/v1/models", "", {{"origin", "https://x"}}).status, 405) << "off by default";
  const auto path = std::filesystem::temp_directory_path() / str("apus-serve-log-", ::getpid());
  const auto api =
      s.api({.access = {.allowed_origins = {"https://x"}}, .verbose = false, .request_log = path.string()});
  const HttpAnswer before = ask(*api, "OPTIONS", "/v1/models", "",
                                {{"origin", "https://x"}, {"access-control-request-headers", "x-stainless-lang"}});
  EXPECT_EQ(before.status, 204);
  EXPECT_EQ(before.headers[1].second, "x-stainless-lang") << "OpenAI's client sends it from a browser";
  const HttpAnswer a = ask(*api, "GET", "/v1/models", "", {{"origin", "https://x"}});
  EXPECT_EQ(a.headers[0].second, "https://x");
  EXPECT_TRUE(ask(*api, "GET", "/v1/models", "", {{"origin", "https://y"}}).headers.empty());
  post(*api, "/v1/chat/completions", question());
  std::string log;
  ASSERT_TRUE(test::eventually([&] {
    return (log = read_file(path, 1 << 20)).find("\"finish\"") != std::string::npos && log.back() == '\n';
  })) << log;
  const Json last = Json::parse(log.substr(log.rfind('\n', log.size() - 2) + 1));
  EXPECT_EQ(last["id"], "test");
  EXPECT_EQ(last["status"], 200);
  EXPECT_GT(last["completion_tokens"], 2);
  EXPECT_EQ(last["finish"], "stop");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace apus
