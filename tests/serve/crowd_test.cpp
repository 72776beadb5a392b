// SPDX-License-Identifier: Apache-2.0
// All at once over real sockets, with another server passing on in front: whole answers, streams, clients that leave,
// adapters that come and go, sleep. Meant for the thread sanitizer;
// without it, that everybody is answered and nothing is left.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/random.h"
#include "serve/forwarder.h"
#include "tests/serve/test_client.h"

namespace apus {
namespace {
using namespace test;

constexpr int kClients = 6, kRounds = 25;
const char* const kKey = "x-api-key: k\r\n";

// One question; false when it got neither its answer nor the refusal of a server that sleeps.
bool ask_once(int port, uint64_t kind) {
  const std::string path = "/v1/chat/completions", hi = R"({"messages": [{"role": "user", "content": "hi"}])";
  Client c(port);
  switch (kind) {
    case 0:
      c.send(request(path, hi + R"(, "model": "extra"})", kKey));
      break;  // which may not be there
    case 1:
      c.send(request("/v1/embeddings", R"({"input": ["a", "b"]})", kKey));
      break;
    case 2:
      c.send(str("GET /metrics HTTP/1.1\r\nHost: x\r\n", kKey, "\r\n"));
      break;
    case 3:
      c.send(request(path, hi + R"(, "n": 2, "guided_json": {"type": "object"}})", kKey));
      break;
    default:
      c.send(request(path, hi + R"(, "stream": true})", kKey));
  }
  if (kind == 5) return c.connected();  // leaves at once
  if (!c.read_to("\r\n\r\n")) return false;
  const int status = status_of(c.received());
  if (status == 503 || (kind == 0 && status == 404)) return true;
  if (status != 200) return false;
  if (kind == 6) return true;  // leaves in the middle
  return c.received().find("chunked") != std::string::npos ? c.read_to("0\r\n\r\n") : !c.answer().empty();
}

TEST(HttpServer, ACrowdWhileAdaptersComeAndGo) {
  Listening l({}, {.access = {.api_key = "k"}, .verbose = false});
  l.engine.step_us = 200;
  const auto forwarder =
      std::make_shared<Forwarder>(Access{.api_key = ""}, str("http://127.0.0.1:", l.server.port()), false);
  HttpServer front(Listening::local({}), forwarder);
  std::atomic<int> lost{0}, asking{kClients};
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i)
    clients.emplace_back([&, i] {
      Random random(static_cast<uint64_t>(i), "crowd");
      for (int round = 0; round < kRounds; ++round)
        lost += !ask_once(i % 2 ? front.port() : l.server.port(), random.below(7));
      --asking;
    });
  while (asking > 0) {
    const std::map<std::string, std::string> key = {{"x-api-key", "k"}};
    EXPECT_EQ(
        ask(*l.served, "POST", "/v1/load_lora_adapter", R"({"lora_name": "extra", "lora_path": "dir"})", key).status,
        200);
    EXPECT_EQ(ask(*l.served, "POST", "/sleep", "", key, "level=1").status, 200);
    EXPECT_EQ(ask(*l.served, "POST", "/wake_up", "", key).status, 200);
    EXPECT_EQ(ask(*l.served, "POST", "/v1/unload_lora_adapter", R"({"lora_name": "extra"})", key).status, 200);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (auto& c : clients) c.join();
  EXPECT_EQ(lost, 0);
  EXPECT_TRUE(l.engine.becomes_idle());
  EXPECT_TRUE(eventually([&] { return l.served->active() == 0 && forwarder->active() == 0; }));
  front.stop();
}

}  // namespace
}  // namespace apus
