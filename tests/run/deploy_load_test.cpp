// SPDX-License-Identifier: Apache-2.0
// The real engine behind the real server while everything happens at once: whole answers, streams, forms, /infer/,
// clients that leave, adapters that come and go, sleep of both levels, and an end under load. Whoever is answered gets
// what he would get alone. Meant for the thread sanitizer too (preset tsan-engine).
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "base/random.h"
#include "run/deploy.h"
#include "serve/http_server.h"
#include "tests/run/loud_adapter.h"
#include "tests/run/tiny_model.h"
#include "tests/serve/test_client.h"

namespace apus {
namespace {
namespace fs = std::filesystem;
using test::Client;

constexpr int kClients = 4, kRounds = 15;
const char* const kKey = "x-api-key: k\r\n";
const std::map<std::string, std::string> kKeys = {{"x-api-key", "k"}};

class DeployLoad : public ::testing::Test {
 protected:
  DeployLoad() : dir(fs::temp_directory_path() / str("apus-deploy-load-", ::getpid())) {
    fs::remove_all(dir);
    EXPECT_EQ(test::init_tiny_model(dir / "model"), 0);
    test::save_loud_adapter(dir / "model", dir / "adapter");
    options.model.model = (dir / "model").string();
    options.served_model_name = "tiny";
    options.model.device = "cpu";
    options.engine.spec.max_sequences = 8;
    options.engine.kv_cache_gb = 0.004;  // so little that sequences give their blocks back
    in.emplace(open_inference(options.model, options.placement, "", options.prompt, options.engine));
    api = std::make_shared<Api>(ApiSpec{.access = {.api_key = "k"}, .verbose = false}, service_spec(options, *in),
                                workers);
    server.emplace(HttpServerSpec{.host = "127.0.0.1", .port = 0}, api);
    port = server->port();
  }
  ~DeployLoad() override {
    stop();
    fs::remove_all(dir);
  }
  void stop() {  // in the order of run/deploy
    if (!server) return;
    server->stop();
    workers->stop();
    api->stop();
    server.reset();
  }

  static std::string body(int prompt, const std::string& more) {
    const std::string text(static_cast<size_t>(prompt * 40), 'x');
    return json_text({{"messages", Json::array({{{"role", "user"}, {"content", text}}})},
                      {"max_tokens", 12},
                      {"temperature", 0}})
        .insert(1, more);
  }
  void admin(const std::string& path, const std::string& text, const std::string& query = "") {
    const HttpAnswer a = test::ask(*api, "POST", path, text, kKeys, query);
    EXPECT_EQ(a.status, 200) << path << ": " << a.body;
  }
  void load_extra() {
    admin("/v1/load_lora_adapter", json_text({{"lora_name", "extra"}, {"lora_path", (dir / "adapter").string()}}));
  }
  void unload_extra() { admin("/v1/unload_lora_adapter", R"({"lora_name": "extra"})"); }
  std::string answer(int prompt, const char* model) {
    const HttpAnswer a =
        test::ask(*api, "POST", "/v1/chat/completions", body(prompt, str(R"("model": ")", model, R"(", )")), kKeys);
    EXPECT_EQ(a.status, 200) << a.body;
    return content(a.body);
  }
  static std::string content(const std::string& whole) {
    return Json::parse(whole)["choices"][0]["message"]["content"];
  }

  // One exchange. Empty: all is well.
  std::string ask_once(Random& random) {
    const int prompt = static_cast<int>(random.below(3));
    const uint64_t kind = random.below(9);
    const bool adapted = kind <= 1;
    const std::string path = kind == 2 ? "/v1/embeddings" : kind == 3 ? "/infer/" : "/v1/chat/completions";
    std::string text = body(prompt, adapted ? R"("model": "extra", )" : "");
    if (kind == 2) text = R"({"input": ["a", "b c"]})";
    if (kind == 3) text = R"({"infer_requests": [)" + text + ", " + text + R"(], "request_config": {"max_tokens": 3}})";
    if (kind == 4) text = body(prompt, R"("n": 2, "guided_json": {"type": "object"}, )");
    if (kind >= 5) text = body(prompt, R"("stream": true, )");
    Client c(port);
    if (!c.send(test::request(path, text, kKey))) return "not sent";
    if (kind == 7) return "";  // leaves at once
    if (!c.read_to("\r\n\r\n")) return "no head";
    const int status = test::status_of(c.received());
    if (status == 503 || (adapted && status == 404)) return "";  // asleep; not loaded
    if (status != 200) return c.received();
    if (kind == 8) return "";  // leaves in the middle
    if (kind >= 5)
      return c.read_to("0\r\n\r\n") && c.received().find("[DONE]") != std::string::npos ? "" : "half a stream";
    const std::string got = c.answer();
    if (got.empty()) return "no answer";
    if (!adapted) return "";
    const std::string said = content(got.substr(got.find("\r\n\r\n") + 4));
    return said == extra[static_cast<size_t>(prompt)] ? "" : "another answer: " + said;
  }
  std::vector<std::thread> clients(std::atomic<int>& asking, std::atomic<bool>& ends) {
    std::vector<std::thread> out;
    asking = kClients;
    for (int i = 0; i < kClients; ++i)
      out.emplace_back([&, i] {
        Random random(static_cast<uint64_t>(i), "load");
        for (int round = 0; round < kRounds && !ends; ++round) {
          const std::string wrong = ask_once(random);
          EXPECT_TRUE(ends || wrong.empty()) << wrong;
        }
        --asking;
      });
    return out;
  }

  const fs::path dir;
  DeployOptions options;
  std::optional<Inference> in;
  std::shared_ptr<Workers> workers = std::make_shared<Workers>(2);
  std::shared_ptr<Api> api;
  std::optional<HttpServer> server;
  int port = 0;                    // clients ask it while the server ends
  std::vector<std::string> extra;  // the adapter's answers
};

TEST_F(DeployLoad, EverythingAtOnce) {
  std::vector<std::string> plain;
  load_extra();
  for (int i = 0; i < 3; ++i) plain.push_back(answer(i, "tiny")), extra.push_back(answer(i, "extra"));
  EXPECT_NE(plain, extra);
  std::atomic<int> asking{0};
  std::atomic<bool> ends{false};
  auto threads = clients(asking, ends);
  for (int i = 0; asking > 0; ++i) {
    unload_extra();
    if (i % 4 == 1) {
      admin("/sleep", "", i % 8 == 1 ? "level=1" : "level=2");
      admin("/wake_up", "");
    }
    load_extra();
    for (int k = 0; k < 3; ++k) EXPECT_EQ(answer(k, "tiny"), plain[static_cast<size_t>(k)]);
  }
  for (auto& t : threads) t.join();
  EXPECT_TRUE(test::eventually([&] {
    const EngineStats s = in->engine->stats();
    return api->active() == 0 && s.running == 0 && s.waiting == 0 && s.blocks_used == 0;
  }));
  EXPECT_GT(in->engine->stats().cached_tokens, 0);
  EXPECT_EQ(in->engine->stats().failed_steps, 0);
}

TEST_F(DeployLoad, AnEndUnderLoad) {
  load_extra();
  for (int i = 0; i < 3; ++i) extra.push_back(answer(i, "extra"));
  std::atomic<int> asking{0};
  std::atomic<bool> ends{false};
  auto threads = clients(asking, ends);
  EXPECT_TRUE(test::eventually([&] { return api->active() > 1 || asking == 0; }));
  ends = true;
  api->drain();
  server->stop_accepting();
  api->stop_all();
  stop();
  in.reset();
  for (auto& t : threads) t.join();
  EXPECT_EQ(api->active(), 0);
}

}  // namespace
}  // namespace apus
