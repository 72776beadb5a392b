// SPDX-License-Identifier: Apache-2.0
// The server over real sockets: keep-alive, pipelining, slow, silent, leaving and loud clients, limits, draining.
#include <gtest/gtest.h>

#include "base/clock.h"
#include "tests/eventually.h"
#include "tests/serve/test_client.h"

namespace apus {
namespace {
using test::chat;
using test::Client;
using test::Listening;
using test::request;
using test::Served;
using test::status_of;

TEST(HttpServer, KeepAliveAndPipelining) {
  Listening l;
  Client c(l.server.port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(c.send(chat()));
    const std::string a = c.answer();
    EXPECT_EQ(status_of(a), 200) << a;
    EXPECT_NE(a.find("Hello, world!"), std::string::npos);
    EXPECT_NE(a.find("Connection: keep-alive"), std::string::npos);
  }
  ASSERT_TRUE(c.send(chat() + request("/tokenize", R"({"prompt": "x"})") + "GET /health HTTP/1.1\r\n\r\n" + chat()));
  EXPECT_NE(c.answer().find("Hello, world!"), std::string::npos);
  EXPECT_NE(c.answer().find("\"tokens\""), std::string::npos);
  EXPECT_EQ(status_of(c.answer()), 200);
  EXPECT_NE(c.answer().find("Hello, world!"), std::string::npos);
  ASSERT_TRUE(c.send("GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"));
  EXPECT_NE(c.answer().find("Connection: close"), std::string::npos);
  EXPECT_TRUE(c.is_closed());
}

TEST(HttpServer, BytesOneByOne) {
  Listening l;
  Client c(l.server.port());
  for (const char b : chat()) ASSERT_TRUE(c.send(std::string(1, b)));
  EXPECT_EQ(status_of(c.answer()), 200);
}

TEST(HttpServer, ChunkedStreamAndRequestIds) {
  Listening l;
  Client c(l.server.port());
  ASSERT_TRUE(
      c.send(request("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "hi"}], "stream": true})",
                     "X-Request-Id: mine-1\r\n")));
  ASSERT_TRUE(c.read_to("0\r\n\r\n"));
  EXPECT_NE(c.received().find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_NE(c.received().find("X-Request-Id: mine-1"), std::string::npos);
  EXPECT_NE(c.received().find("data: [DONE]\n\n"), std::string::npos);
  Client old(l.server.port());  // HTTP/1.0 knows no chunks
  const std::string body = R"({"messages": [{"role": "user", "content": "hi"}], "stream": true})";
  ASSERT_TRUE(old.send(str("POST /v1/chat/completions HTTP/1.0\r\nX-Request-Id: a b\r\nContent-Length: ", body.size(),
                           "\r\n\r\n", body)));
  EXPECT_TRUE(old.is_closed());
  EXPECT_EQ(old.received().find("Transfer-Encoding"), std::string::npos);
  EXPECT_EQ(old.received().find("a b"), std::string::npos) << "an id that would break a log is not taken over";
  EXPECT_NE(old.received().find("data: [DONE]"), std::string::npos);
}

TEST(HttpServer, WhatIsNoRequest) {
  Listening l({.body_limit = 1 << 20}, {.access = {.api_key = "k"}, .verbose = false});
  const auto answered = [&](const std::string& bytes) {
    Client c(l.server.port());
    c.send(bytes);
    const std::string a = c.answer();
    EXPECT_TRUE(c.is_closed());
    return status_of(a);
  };
  EXPECT_EQ(answered("hello there\r\n\r\n"), 400);
  EXPECT_EQ(answered("GET /health HTTP/7.7\r\n\r\n"), 400);
  EXPECT_EQ(answered("POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n"), 400);
  EXPECT_EQ(answered("GET /health HTTP/1.1\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n"), 431);
  const std::string key = "x-api-key: k\r\n";
  EXPECT_EQ(answered("POST /tokenize HTTP/1.1\r\n" + key +
                     "Content-Encoding: gzip\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}"),
            415);
  EXPECT_EQ(
      answered("POST /tokenize HTTP/1.1\r\n" + key + "Transfer-Encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"),
      501);
  EXPECT_EQ(
      answered("POST /tokenize HTTP/1.1\r\n" + key + "Content-Length: 99999999\r\n\r\n" + std::string(3 << 20, 'x')),
      413);
  EXPECT_EQ(answered("POST /tokenize HTTP/1.1\r\n" + key + "Transfer-Encoding: chunked\r\n\r\n200000\r\n" +
                     std::string(0x200000, 'x') + "\r\n0\r\n\r\n"),
            413);
  EXPECT_EQ(answered("POST /tokenize HTTP/1.1\r\nContent-Length: 500000\r\n\r\n" + std::string(500'000, 'x')), 401)
      << "before the body is read";
  Client still(l.server.port());
  still.send("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_EQ(status_of(still.answer()), 200);
}

TEST(HttpServer, ExpectContinueHeadAndQuery) {
  Listening l;
  Client c(l.server.port());
  ASSERT_TRUE(c.send("POST /tokenize?x=1 HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 15\r\n\r\n"));
  ASSERT_TRUE(c.read_to("100 Continue\r\n\r\n"));
  ASSERT_TRUE(c.send(R"({"prompt": "x"})"));
  EXPECT_EQ(status_of(c.answer()), 100);
  EXPECT_EQ(status_of(c.answer()), 200);
  ASSERT_TRUE(c.send("HEAD /v1/models HTTP/1.1\r\n\r\nGET /%68ealth HTTP/1.1\r\n\r\n"));
  ASSERT_TRUE(c.read_to("\r\n\r\n"));
  ASSERT_TRUE(c.read_to("Content-Length: 0\r\n"));
  EXPECT_EQ(c.received().find("\"object\""), std::string::npos) << "HEAD has no body";
}

TEST(HttpServer, TargetsAsForAProxyAndIdsOnEveryAnswer) {
  Listening l;
  Client c(l.server.port());
  ASSERT_TRUE(c.send("GET http://some.where:80/health?x HTTP/1.1\r\n\r\n"));
  const std::string a = c.answer();
  EXPECT_EQ(status_of(a), 200);
  EXPECT_NE(a.find("\r\nX-Request-Id: "), std::string::npos);
  EXPECT_NE(a.find("\r\nRequest-Id: "), std::string::npos) << "where Anthropic's clients look";
  ASSERT_TRUE(c.send("no request\r\n\r\n"));
  const std::string b = c.answer();
  EXPECT_EQ(status_of(b), 400);
  EXPECT_NE(b.find("\r\nX-Request-Id: "), std::string::npos);
}

// Each limit with a server of its own, whose other limits no busy machine reaches.
TEST(HttpServer, SlowAndSilentClientsAreCutOff) {
  Listening slow_head({.header_seconds = 1}), slow_body({.body_seconds = 1}), no_next({.idle_seconds = 1});
  Client silent(slow_head.server.port()), half(slow_head.server.port()), body(slow_body.server.port()),
      idle(no_next.server.port());
  half.send("POST /tokenize HT");
  body.send("POST /tokenize HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
  idle.send("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_EQ(status_of(idle.answer()), 200);
  for (Client* c : {&silent, &half, &body, &idle}) EXPECT_TRUE(c->is_closed());
  Client dripping(slow_head.server.port());  // a byte now and then does not keep it open
  const Stopwatch watch;
  while (watch.seconds() < 60 && dripping.send("G")) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(watch.seconds(), 60);
}

TEST(HttpServer, WhoLeavesIsForgottenAtOnce) {
  Listening l;
  l.engine.hold = true;
  const auto begin = [&](Client& c, const char* more) {
    const size_t before = l.engine.seen().size();
    ASSERT_TRUE(c.send(chat(more)));
    ASSERT_TRUE(l.engine.has_seen(before + 1));
  };
  Client streaming(l.server.port()), waiting(l.server.port()), halfway(l.server.port());
  begin(streaming, R"(, "stream": true)");
  begin(waiting, "");
  begin(halfway, R"(, "stream": true)");
  EXPECT_EQ(l.engine.running(), 3);
  streaming.leave();
  waiting.leave();
  halfway.half_close();
  EXPECT_TRUE(l.engine.becomes_idle());
  EXPECT_EQ(l.engine.cancels, 3);
  l.engine.hold = false;
  Client next(l.server.port());
  next.send(chat());
  EXPECT_EQ(status_of(next.answer()), 200);
  EXPECT_TRUE(test::eventually([&] { return l.server.connections() == 1; }));
  EXPECT_TRUE(test::eventually([&] { return l.served->active() == 0; }));
}

TEST(HttpServer, AFailureInTheMiddleOfAStream) {
  Listening l;
  l.engine.fail_after = 1;
  Client c(l.server.port());
  ASSERT_TRUE(c.send(chat(R"(, "stream": true)")));
  ASSERT_TRUE(c.read_to("0\r\n\r\n"));
  EXPECT_NE(c.received().find("the device is gone"), std::string::npos);
  EXPECT_EQ(status_of(c.received()), 200);
}

TEST(HttpServer, ManyConnectionsAtOnce) {
  Listening l({.max_connections = 60});
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 50; ++i) clients.push_back(std::make_unique<Client>(l.server.port()));
  for (auto& c : clients) ASSERT_TRUE(c->send(chat(R"(, "stream": true, "n": 2)")));
  for (auto& c : clients) EXPECT_TRUE(c->read_to("data: [DONE]"));
  std::vector<std::unique_ptr<Client>> more;
  for (int i = 0; i < 15; ++i) more.push_back(std::make_unique<Client>(l.server.port()));
  EXPECT_EQ(status_of(more.back()->answer()), 503);
}

TEST(HttpServer, DrainsBeforeItStops) {
  Listening l;
  l.engine.step_us = 30'000;
  Client busy(l.server.port()), idle(l.server.port());
  ASSERT_TRUE(busy.send(chat(R"(, "stream": true)")));
  ASSERT_TRUE(busy.read_to("\"content\":\"H"));
  l.served->drain();
  l.server.stop_accepting();
  EXPECT_TRUE(idle.is_closed());
  EXPECT_TRUE(busy.read_to("data: [DONE]")) << "what is under way ends";
  EXPECT_TRUE(busy.is_closed());
  EXPECT_FALSE(Client(l.server.port()).connected());
  EXPECT_TRUE(test::eventually([&] { return l.served->active() == 0; }));
}

TEST(HttpServer, StopsWhileAnswersAreMade) {
  auto l = std::make_unique<Listening>();
  l->engine.hold = true;
  Client a(l->server.port()), b(l->server.port());
  a.send(chat(R"(, "stream": true)"));
  b.send(chat());
  ASSERT_TRUE(l->engine.has_seen(2));
  l->server.stop();
  EXPECT_TRUE(a.is_closed());
  EXPECT_TRUE(b.is_closed());
  l.reset();
}

TEST(HttpServer, TheNextFreePort) {
  Served s;
  const auto api = s.api();
  const HttpServer first({.host = "127.0.0.1", .port = 0}, api);
  const HttpServer second({.host = "127.0.0.1", .port = first.port()}, api);
  EXPECT_GT(second.port(), first.port());
  EXPECT_THROW(HttpServer({.host = "127.0.0.1", .port = first.port(), .ports_to_try = 0}, api), Error);
  EXPECT_THROW(HttpServer({.host = "no.such.host.invalid"}, api), Error);
  EXPECT_THROW(HttpServer({.host = "127.0.0.1", .port = 0, .tls_key = "/none", .tls_certificate = "/none"}, api),
               Error);
}

}  // namespace
}  // namespace apus
