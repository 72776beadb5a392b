// SPDX-License-Identifier: Apache-2.0
// Passing on to another server: a stand-in in this process, and a stand-in program that is started and watched.
#include "serve/forwarder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "base/program.h"
#include "cli/deploy_upstream.h"
#include "serve/child_server.h"
#include "serve/http_server.h"
#include "tests/folder.h"
#include "tests/loopback.h"
#include "tests/serve/test_server.h"

namespace apus {
namespace {

HttpAnswer through(Forwarder& f, const std::string& method, const std::string& path, const std::string& body = "",
                   std::map<std::string, std::string> headers = {}) {
  auto call = std::make_shared<HttpCall>();
  call->id = "test";
  call->method = method;
  call->target = call->path = path;
  call->body = body;
  call->headers = std::move(headers);
  if (auto refused = f.admit(*call)) return *refused;
  const auto reply = std::make_shared<test::Waiting>();
  f.serve(call, reply);
  return reply->wait();
}

TEST(Forwarder, AnswersStreamsErrorsAndKeys) {
  test::Served s;
  const auto api = s.api();
  const HttpServer behind({.host = "127.0.0.1", .port = 0}, api);
  Forwarder f({.api_key = "k"}, str("http://127.0.0.1:", behind.port()), false);
  const std::map<std::string, std::string> key = {{"x-api-key", "k"}, {"content-type", "application/json"}};
  const std::string body = R"({"messages": [{"role": "user", "content": "hi"}])";
  HttpAnswer a = through(f, "POST", "/v1/chat/completions", body + "}", key);
  EXPECT_EQ(a.status, 200);
  EXPECT_EQ(Json::parse(a.body)["choices"][0]["message"]["content"], s.answer);
  a = through(f, "POST", "/v1/chat/completions", body + R"(, "stream": true})", key);
  EXPECT_EQ(a.content_type, "text/event-stream");
  EXPECT_EQ(test::events(a.body).back(), "[DONE]");
  EXPECT_EQ(through(f, "POST", "/v1/chat/completions", "{}", key).status, 400);
  EXPECT_EQ(through(f, "GET", "/v1/models").status, 401);
  EXPECT_EQ(through(f, "GET", "/health").status, 200);
  for (const char* target : {"@elsewhere/health", ".elsewhere/health", ":1/health"})
    EXPECT_EQ(through(f, "GET", target, "", key).status, 400) << "requests go to one server only";
  Forwarder nowhere({}, "http://127.0.0.1:1", false);
  EXPECT_EQ(through(nowhere, "GET", "/v1/models").status, 502);
}

TEST(Forwarder, WhoLeavesIsLeftThereToo) {
  test::Served s;
  s.engine.hold = true;
  const auto api = s.api();
  const HttpServer behind({.host = "127.0.0.1", .port = 0}, api);
  Forwarder f({}, str("http://127.0.0.1:", behind.port()), false);
  auto call = std::make_shared<HttpCall>();
  call->method = "POST";
  call->target = call->path = "/v1/chat/completions";
  call->body = R"({"messages": [{"role": "user", "content": "hi"}], "stream": true})";
  const auto reply = std::make_shared<test::Waiting>();
  f.serve(call, reply);
  EXPECT_TRUE(test::eventually([&] { return s.engine.running() == 1; }));
  reply->go_away();
  EXPECT_TRUE(s.engine.becomes_idle());
}

TEST(Forwarder, CopiesShareTheRequests) {
  test::Served one, other;
  one.answer = "from the first", other.answer = "from the second";
  one.engine.hold = true;
  const auto api = one.api({.access = {"k"}, .verbose = false}),
             other_api = other.api({.access = {"k"}, .verbose = false});
  const HttpServer first({.host = "127.0.0.1", .port = 0}, api), second({.host = "127.0.0.1", .port = 0}, other_api);
  Forwarder f({.api_key = "k"}, {str("http://127.0.0.1:", first.port()), str("http://127.0.0.1:", second.port())},
              false);
  const std::map<std::string, std::string> key = {{"x-api-key", "k"}, {"content-type", "application/json"}};
  auto call = std::make_shared<HttpCall>();
  call->method = "POST", call->headers = key;
  call->target = call->path = "/v1/chat/completions";
  call->body = R"({"messages": [{"role": "user", "content": "hi"}]})";
  const auto reply = std::make_shared<test::Waiting>();
  f.serve(call, reply);
  EXPECT_TRUE(test::eventually([&] { return one.engine.running() == 1; }));
  for (int i = 0; i < 2; ++i) {
    const HttpAnswer a = through(f, "POST", call->path, call->body, key);
    EXPECT_EQ(Json::parse(a.body)["choices"][0]["message"]["content"], other.answer) << "the first is busy";
  }
  EXPECT_EQ(through(f, "POST", "/v1/load_lora_adapter", "{}", key).status, 501) << "that would change one of the two";
  EXPECT_EQ(through(f, "GET", "/v1/models").status, 401);
  reply->go_away();
  EXPECT_TRUE(one.engine.becomes_idle());
}

// One that begins an answer and is killed in the middle of it.
class DyingServer {
 public:
  explicit DyingServer(std::string said) : said_(std::move(said)) {
    thread_ = std::thread([this] {
      const int client = door_.accept();
      char request[4096];
      (void)!::read(client, request, sizeof request);
      (void)!::write(client, said_.data(), said_.size());
      ::close(client);
    });
  }
  ~DyingServer() { thread_.join(), door_.close(); }
  std::string url() const { return str("http://127.0.0.1:", door_.port()); }

 private:
  const std::string said_;
  test::Loopback door_{4};
  std::thread thread_;
};

TEST(Forwarder, WhatALostCopyLeavesCanBeAskedAgain) {
  test::Served s;
  const auto api = s.api();
  const HttpServer healthy({.host = "127.0.0.1", .port = 0}, api);
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string part = "data: {\"n\": 1}\n\ndata: {\"n\": ";  // half an event
  for (const char* path : {"/v1/chat/completions", "/v1/messages"}) {
    const DyingServer dying(head + "1c\r\n" + part + "\r\n");
    ASSERT_EQ(part.size(), 0x1cU);
    Forwarder f({}, {dying.url(), ""}, false);
    const HttpAnswer cut = through(f, "POST", path, "{}");
    EXPECT_EQ(cut.status, 200);
    EXPECT_EQ(cut.body.find("data: {\"n\": 1}\n\n"), 0u) << cut.body;
    EXPECT_EQ(cut.body.find("data: {\"n\": data"), std::string::npos) << cut.body;
    EXPECT_NE(cut.body.find("ask again"), std::string::npos) << cut.body;
    EXPECT_EQ(cut.body.ends_with("data: [DONE]\n\n"), std::string(path) == "/v1/chat/completions") << cut.body;
  }
  const DyingServer dead("");  // before it has said anything
  Forwarder f({}, {dead.url(), ""}, false);
  const HttpAnswer refused = through(f, "GET", "/v1/models");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.back(), (std::pair<std::string, std::string>{"Retry-After", "1"}));
  f.place_copy(0, "");
  EXPECT_EQ(through(f, "GET", "/v1/models").status, 503) << "nobody is there";
  f.place_copy(1, str("http://127.0.0.1:", healthy.port()));
  EXPECT_EQ(through(f, "GET", "/v1/models").status, 200);
}

TEST(Forwarder, TheCommandLine) {
  DeployOptions o;
  o.infer_backend = "vllm";
  o.model.model = "/m";
  o.served_model_name = "m";
  o.model.max_model_len = 100;
  o.vllm_tensor_parallel_size = 2;
  o.answers.temperature = 0.5;
  o.answers.max_new_tokens = 9;
  o.served = {{.name = "a", .folder = "/x"}};
  o.vllm_engine_kwargs = {{"max_loras", 4}, {"enforce_eager", true}, {"off", false}};
  EXPECT_EQ(upstream_command(o, "vllm", 5), (std::vector<std::string>{"vllm",
                                                                      "serve",
                                                                      "/m",
                                                                      "--host",
                                                                      "127.0.0.1",
                                                                      "--port",
                                                                      "5",
                                                                      "--served-model-name",
                                                                      "m",
                                                                      "--max-model-len",
                                                                      "100",
                                                                      "--max-num-seqs",
                                                                      "256",
                                                                      "--gpu-memory-utilization",
                                                                      "0.9",
                                                                      "--seed",
                                                                      "42",
                                                                      "--override-generation-config",
                                                                      R"({"max_new_tokens":9,"temperature":0.5})",
                                                                      "--tensor-parallel-size",
                                                                      "2",
                                                                      "--enable-lora",
                                                                      "--lora-modules",
                                                                      "a=/x",
                                                                      "--max-loras",
                                                                      "4",
                                                                      "--enforce-eager"}));
}

TEST(Forwarder, FlagsThatNobodyReadsThereAreNoted) {
  const auto noted = [](const std::vector<std::string>& flags) {
    DeployOptions o;
    OptionTable v = OptionTable::of(o);
    v.parse(flags);
    note_idle_flags(o, v);
    std::string all;
    for (const auto& note : v.notes) all += note + "\n";
    return all;
  };
  std::string notes = noted({"--infer_backend", "vllm", "--temperature", "0", "--request_log", "x", "--model", "m"});
  EXPECT_NE(notes.find("--request_log has no effect"), std::string::npos) << notes;
  EXPECT_EQ(notes.find("--temperature"), std::string::npos) << "it is passed on";
  EXPECT_EQ(notes.find("--model"), std::string::npos);
  EXPECT_NE(noted({"--infer_backend", "sglang", "--temperature", "0"}).find("--temperature"), std::string::npos);
  notes = noted({"--infer_backend", "vllm", "--vllm_server_base_url", "http://x", "--model", "m", "--top_p", "0.5"});
  EXPECT_NE(notes.find("--model has no effect"), std::string::npos) << notes;
  EXPECT_NE(notes.find("--top_p has no effect"), std::string::npos) << notes;
}

TEST(Deploy, TheAddressAsItIsTyped) {
  DeployOptions o;
  EXPECT_EQ(served_at(o, 5), "http://127.0.0.1:5/v1");
  o.host = "::1";
  o.ssl_keyfile = "k";
  EXPECT_EQ(served_at(o, 5), "https://[::1]:5/v1");
}

TEST(Forwarder, AChildIsStartedWatchedAndEnded) {
  const test::Folder folder;
  const auto script = folder.path / "stand-in";
  std::ofstream(script) << "#!/bin/sh\necho started > \"" << folder.path.string()
                        << "/mark\"\n[ \"$1\" = fail ] && exit 3\nsleep 100 &\nwait\n";
  ::chmod(script.c_str(), 0755);
  {
    ChildServer failing({.words = {script.string(), "fail"}});
    EXPECT_TRUE(test::eventually([&] { return failing.ended().has_value(); }));
    EXPECT_EQ(failing.ended(), "exit code 3");
  }
  const auto begin = std::chrono::steady_clock::now();
  {
    ChildServer child({.words = {script.string(), "run"}});
    EXPECT_FALSE(child.ended());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(9))
      << "it ends when it is told to, not killed after ten";
  EXPECT_THROW(ChildServer({.words = {(folder.path / "nothing").string()}}), Error);
  EXPECT_FALSE(program_on_path("no-such-program-of-apus"));
  EXPECT_TRUE(program_on_path("sh"));
}

}  // namespace
}  // namespace apus
