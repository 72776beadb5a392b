// SPDX-License-Identifier: Apache-2.0
// Several models behind one address: stand-ins in this process, each a real server.
#include "serve/household.h"

#include <gtest/gtest.h>

#include <future>

#include "base/files.h"
#include "cli/deploy_models.h"
#include "serve/http_server.h"
#include "tests/folder.h"
#include "tests/serve/test_server.h"

namespace apus {
namespace {
using test::Served;
using test::Waiting;

struct StandIn : HouseServer {
  StandIn(const std::string& name, std::string fails, std::vector<std::string>& log)
      : log_(log), fails_(std::move(fails)) {
    served_.answer = "I am " + name;
    ServiceSpec service = served_.service();
    service.model_name = name;
    api_ = std::make_shared<Api>(ApiSpec{.verbose = false}, std::move(service), served_.workers);
    server_ = std::make_unique<HttpServer>(HttpServerSpec{.host = "127.0.0.1", .port = 0}, api_);
    name_ = name;
    log_.push_back("+" + name);
  }
  ~StandIn() override { log_.push_back("-" + name_); }
  std::string url() const override { return str("http://127.0.0.1:", server_->port()); }
  bool ready() override { return fails_.empty(); }
  std::optional<std::string> ended() override { return fails_.empty() ? std::nullopt : std::optional(fails_); }

  std::vector<std::string>& log_;
  std::string fails_, name_;
  Served served_;
  std::shared_ptr<Api> api_;
  std::unique_ptr<HttpServer> server_;
};

struct HouseholdTest : testing::Test {
  std::vector<HouseModel> models = {
      {"a", "", 10, false}, {"b", "", 10, false}, {"c", "", 10, false}, {"huge", "", 99, false}};
  std::vector<std::string> log;
  std::string fails;
  HouseholdSpec spec() {
    return {.access = {},
            .models = [this] { return models; },
            .start = [this](const HouseModel& m) { return std::make_unique<StandIn>(m.name, fails, log); },
            .memory = 20,
            .verbose = false};
  }
  static HttpAnswer ask(Household& house, const std::string& method, const std::string& path, const Json& body = {}) {
    auto call = std::make_shared<HttpCall>();
    call->method = method, call->path = call->target = path, call->id = "test";
    if (!body.is_null()) call->body = body.dump(), call->headers["content-type"] = "application/json";
    return send(house, call);
  }
  static HttpAnswer send(Household& house, const std::shared_ptr<HttpCall>& call) {
    if (auto refused = house.admit(*call)) return *refused;
    const auto reply = std::make_shared<Waiting>();
    auto answer = std::async(std::launch::async, [&] {
      house.serve(call, reply);
      return reply->wait();
    });
    while (answer.wait_for(std::chrono::milliseconds(2)) != std::future_status::ready) house.look();
    return answer.get();
  }
  static std::string chat(Household& house, const std::string& model) {
    const HttpAnswer a = ask(house, "POST", "/v1/chat/completions",
                             {{"model", model}, {"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}});
    const Json body = Json::parse(a.body);
    return a.status == 200 ? body["choices"][0]["message"]["content"].get<std::string>()
                           : str(a.status, " ", body["error"]["message"].get<std::string>());
  }
};

TEST_F(HouseholdTest, LoadsWhatIsAskedForAndLetsTheOldestGo) {
  Household house(spec());
  EXPECT_EQ(chat(house, "a"), "I am a");
  EXPECT_EQ(chat(house, "b:latest"), "I am b");
  EXPECT_EQ(chat(house, "a"), "I am a");
  EXPECT_EQ(log, (std::vector<std::string>{"+a", "+b"}));
  EXPECT_EQ(chat(house, "c"), "I am c");  // there is room for two: b is the one that nobody asked for lately
  EXPECT_EQ(log, (std::vector<std::string>{"+a", "+b", "-b", "+c"}));
  const Json list = Json::parse(ask(house, "GET", "/v1/models").body)["data"];
  ASSERT_EQ(list.size(), 4u);
  EXPECT_EQ(list[0]["loaded"], true);
  EXPECT_EQ(list[1]["loaded"], false);
  EXPECT_EQ(Json::parse(ask(house, "GET", "/api/ps").body)["models"].size(), 2u);
  EXPECT_EQ(Json::parse(ask(house, "GET", "/api/tags").body)["models"].size(), 4u);
}

TEST_F(HouseholdTest, WhatCannotBe) {
  Household house(spec());
  EXPECT_EQ(chat(house, "huge").substr(0, 4), "507 ");
  EXPECT_NE(chat(house, "hug").find("is huge meant?"), std::string::npos);
  EXPECT_EQ(chat(house, "").substr(0, 4), "400 ");
  fails = "exit code 3; no tokenizer";
  EXPECT_NE(chat(house, "a").find("no tokenizer"), std::string::npos);
  fails.clear();
  EXPECT_EQ(chat(house, "a"), "I am a");  // tried anew
  models.push_back({"new", "", 1, false});
  EXPECT_EQ(chat(house, "new"), "I am new");
}

TEST_F(HouseholdTest, OllamasClientSendsAModelAway) {
  Household house(spec());
  EXPECT_EQ(chat(house, "a"), "I am a");
  EXPECT_EQ(ask(house, "POST", "/api/generate", {{"model", "a"}, {"keep_alive", 0}}).status, 200);
  for (int i = 0; i < 500 && log.size() < 2; ++i) {
    house.look();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(log.back(), "-a");
}

TEST_F(HouseholdTest, AFormNamesItsModel) {
  Household house(spec());
  auto call = std::make_shared<HttpCall>();
  call->method = "POST", call->path = call->target = "/v1/audio/transcriptions", call->id = "test";
  call->headers["content-type"] = "multipart/form-data; boundary=b";
  call->body = "--b\r\nContent-Disposition: form-data; name=model\r\n\r\nb\r\n--b--\r\n";
  EXPECT_NE(send(house, call).body.find("'file'"), std::string::npos) << "the model's own server misses the sound";
  EXPECT_EQ(log, std::vector<std::string>{"+b"});
}

TEST(HouseholdFolder, NamesAndCommands) {
  const test::Folder folder;
  for (const char* dir : {"plain", "owner/name", "tuned", "empty"})
    std::filesystem::create_directories(folder.path / dir);
  const auto write = [&](const char* file, const std::string& text) { write_file_atomic(folder.path / file, text); };
  write("plain/config.json", "{}"), write("plain/model.safetensors", "12345");
  write("owner/name/config.json", "{}"), write("tuned/adapter_config.json", "{}");
  write("q.gguf", "123"), write("q-mmproj.gguf", ""), write("big-00001-of-00002.gguf", ""),
      write("big-00002-of-00002.gguf", "");
  const auto models = models_in(folder.path, 100);
  std::vector<std::string> names;
  for (const auto& m : models) names.push_back(m.name);
  EXPECT_EQ(names, (std::vector<std::string>{"big-00001-of-00002", "owner/name", "plain", "q", "tuned"}));
  EXPECT_EQ(models[2].bytes, 105);
  EXPECT_TRUE(models[4].adapter);
  const auto words = model_command({"apus", "deploy", "--models", "x"}, models[4], 99, 1.5);
  const auto at = std::find(words.begin(), words.end(), "--adapters");
  ASSERT_NE(at, words.end());
  EXPECT_TRUE((at + 1)->starts_with("tuned="));
  EXPECT_EQ(std::count(words.begin(), words.end(), "--model"), 0);
}

}  // namespace
}  // namespace apus
