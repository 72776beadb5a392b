// SPDX-License-Identifier: Apache-2.0
// The server over real sockets: keep-alive, pipelining, slow, silent, leaving and loud clients, limits, draining.
#include <gtest/gtest.h>
#include <sys/resource.h>

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
  ASSERT_TRUE(
      c.send(chat() + request("/tokenize", R"({"prompt": "x"})") + "GET /health HTTP/1.1\r\nHost: x\r\n\r\n" + chat()));
  EXPECT_NE(c.answer().find("Hello, world!"), std::string::npos);
  EXPECT_NE(c.answer().find("\"tokens\""), std::string::npos);
  EXPECT_EQ(status_of(c.answer()), 200);
  EXPECT_NE(c.answer().find("Hello, world!"), std::string::npos);
  ASSERT_TRUE(c.send("GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
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
  EXPECT_EQ(answered("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n"), 400);
  EXPECT_EQ(answered("GET /health HTTP/1.1\r\nHost: x\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n"), 431);
  const std::string key = "x-api-key: k\r\n";
  EXPECT_EQ(answered("POST /tokenize HTTP/1.1\r\nHost: x\r\n" + key +
                     "Content-Encoding: gzip\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}"),
            415);
  EXPECT_EQ(answered("POST /tokenize HTTP/1.1\r\nHost: x\r\n" + key +
                     "Transfer-Encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"),
            501);
  EXPECT_EQ(answered("POST /tokenize HTTP/1.1\r\nHost: x\r\n" + key + "Content-Length: 99999999\r\n\r\n" +
                     std::string(3 << 20, 'x')),
            413);
  EXPECT_EQ(answered("POST /tokenize HTTP/1.1\r\nHost: x\r\n" + key + "Transfer-Encoding: chunked\r\n\r\n200000\r\n" +
                     std::string(0x200000, 'x') + "\r\n0\r\n\r\n"),
            413);
  EXPECT_EQ(
      answered("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n" + std::string(500'000, 'x')), 401)
      << "before the body is read";
  Client still(l.server.port());
  still.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(status_of(still.answer()), 200);
}

// What a proxy in front may read in another way: refused, and nothing behind it is taken for a request.
TEST(HttpServer, NothingIsSmuggled) {
  Listening l;
  const auto answered = [&](const std::string& head, const std::string& body = "") {
    SCOPED_TRACE(head);
    Client c(l.server.port());
    c.send(head + "\r\n\r\n" + body);
    EXPECT_TRUE(c.is_closed());
    const std::string& all = c.received();
    EXPECT_EQ(all.find("Content-Length: "), all.rfind("Content-Length: ")) << "one answer only: " << all;
    EXPECT_NE(all.find("Connection: close"), std::string::npos) << all;
    EXPECT_NE(all.find("\"error\""), std::string::npos) << all;
    return status_of(all);
  };
  const std::string post = "POST /tokenize HTTP/1.1\r\nHost: x\r\n", get = "GET /health HTTP/1.1\r\n",
                    second = "GET /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
                    chunks = "0\r\n\r\n" + second;
  EXPECT_EQ(answered("GET /health HTTP/1.1", second), 400) << "no Host";
  EXPECT_EQ(answered(get + "Host: x\r\nHost: x", second), 400);
  EXPECT_EQ(answered(get + "Host:\r\nHost: x", second), 400);
  for (const char* host : {"a b", "a,b", "a/b", "a@b", "x\r\n y"}) EXPECT_EQ(answered(get + "Host: " + host), 400);
  EXPECT_EQ(answered("GET /health HTTP/1.0\r\nHost: x\r\nHost: y"), 400);
  const std::string length = "Content-Length: 5", chunked = "Transfer-Encoding: chunked";
  EXPECT_EQ(answered(post + length + "\r\n" + chunked, chunks), 400);
  EXPECT_EQ(answered(post + chunked + "\r\n" + length, chunks), 400);
  EXPECT_EQ(answered(post + length + "\r\nContent-Length: 6", second), 400);
  EXPECT_EQ(answered(post + "Content-Length: 5, 6", second), 400);
  for (const char* bad : {"+5", "-1", "0x5", "5 5", "18446744073709551616", ""})
    EXPECT_EQ(answered(post + "Content-Length: " + bad, second), 400);
  for (const char* coding : {"gzip", "identity", "chunked, gzip", "chunked, chunked", "chunked;q=1"})
    EXPECT_EQ(answered(post + "Transfer-Encoding: " + coding, chunks), 400);
  EXPECT_EQ(answered(post + "Transfer-Encoding: gzip\r\n" + chunked, chunks), 501) << "in two headers or in one";
  EXPECT_EQ(answered(post + "Transfer-Encoding: xchunked", chunks), 501);
  EXPECT_EQ(answered("POST /tokenize HTTP/1.0\r\n" + chunked, chunks), 400) << "HTTP/1.0 knows no chunks";
  EXPECT_EQ(answered(post + "Transfer-Encoding : chunked", chunks), 400) << "a space before the colon";
  EXPECT_EQ(answered("POST /tokenize HTTP/1.1\r\n Host: x"), 400) << "a fold of nothing";
  for (const char* size : {"x", "-1", "0x1", "ffffffffffffffff1", "1 ", " 1", "1\n", ""})
    EXPECT_EQ(answered(post + chunked, std::string(size) + "\r\na\r\n0\r\n\r\n"), 400) << size;
  EXPECT_EQ(answered(post + chunked, "1\r\naXX0\r\n\r\n"), 400) << "no line break behind a chunk";
  EXPECT_EQ(answered("GET /health HTTP/1.1\nHost: x\n"), 400) << "lines end in two bytes";
  EXPECT_EQ(answered("GET /health HTTP/1.1\r\nHost: x\nX: y"), 400);
  EXPECT_EQ(answered(std::string("GET /health HTTP/1.1\r\nHost: x\r\nX: a\0b", 37)), 400);
  EXPECT_EQ(answered(post + "Expect: miracles\r\n" + length), 417);
  Client fine(l.server.port());
  fine.send("\r\nGET /health HTTP/1.1\r\nHost: [::1]:80\r\nX: a\r\n b\r\n\r\nGET /health HTTP/1.0\r\n\r\n");
  EXPECT_EQ(status_of(fine.answer()), 200) << "an empty line before a request, and a folded header";
  EXPECT_EQ(status_of(fine.answer()), 200) << "HTTP/1.0 needs no Host";
}

TEST(HttpServer, EndlessChunksTakeNoMemory) {
  Listening l;
  const std::string head = "POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char* begin : {"1;a=", "0\r\nX: "}) {  // an extension of a chunk, a header behind the last
    Client c(l.server.port());
    c.send(head + begin);
    const std::string more(64 << 10, 'x');
    for (int i = 0; i < 64 && c.send(more); ++i) {}
    EXPECT_TRUE(c.is_closed());
    EXPECT_TRUE(c.received().empty() || status_of(c.received()) == 431) << c.received();
  }
}

TEST(HttpServer, MethodsAsTheyAreAndOptions) {
  Listening l;
  const auto ask = [&](const std::string& line) {
    Client c(l.server.port());
    c.send(line + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    EXPECT_TRUE(c.is_closed());
    return c.received();
  };
  for (const char* method : {"T", "ET", "get", "GETS", "FOO", "PUT", "DELETE", "TRACE", "PATCH"}) {
    const std::string a = ask(method + std::string(" /v1/models"));
    EXPECT_EQ(status_of(a), 405) << method;
    EXPECT_NE(a.find("\r\nAllow: GET, HEAD\r\n"), std::string::npos) << a;
  }
  EXPECT_NE(ask("GET /v1/chat/completions").find("\r\nAllow: POST\r\n"), std::string::npos);
  EXPECT_EQ(status_of(ask("OPTIONS *")), 204);
  EXPECT_EQ(status_of(ask("CONNECT some.where:443")), 404);
  EXPECT_EQ(status_of(ask("GET HTTP://some.where?x")), 200);
  EXPECT_EQ(status_of(ask("GET hTTps://some.where/health")), 200);
  EXPECT_NE(ask("GET /nothing").find("\"not_found_error\""), std::string::npos);
}

// Closing one half is leaving, for whom work would go on (above); an answer that is there at once still comes.
TEST(HttpServer, HalfClosedClientsGetWhatCostsNothing) {
  Listening l;
  const std::string get = "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n";
  Client c(l.server.port());
  c.send(get + get);
  c.half_close();
  EXPECT_TRUE(c.is_closed());
  const std::string all = c.received();
  const size_t first = all.find("\"object\":\"list\"");
  EXPECT_NE(first, std::string::npos) << all;
  EXPECT_NE(all.find("\"object\":\"list\"", first + 1), std::string::npos) << all;
  EXPECT_TRUE(test::eventually([&] { return l.server.connections() == 0; }));
}

TEST(HttpServer, MoreRequestsAtOnceThanAreReadAhead) {
  Listening l;
  Client c(l.server.port());
  std::string many;
  for (int i = 0; i < 40; ++i) many += request("/detokenize", "{\"tokens\": [" + std::string(5000, ' ') + "5]}");
  ASSERT_TRUE(c.send(many));
  for (int i = 0; i < 40; ++i) EXPECT_EQ(status_of(c.answer()), 200) << i;
}

TEST(HttpServer, ExpectContinueHeadAndQuery) {
  Listening l;
  Client c(l.server.port());
  ASSERT_TRUE(c.send("POST /tokenize?x=1 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 15\r\n\r\n"));
  ASSERT_TRUE(c.read_to("100 Continue\r\n\r\n"));
  ASSERT_TRUE(c.send(R"({"prompt": "x"})"));
  EXPECT_EQ(status_of(c.answer()), 100);
  EXPECT_EQ(status_of(c.answer()), 200);
  ASSERT_TRUE(c.send("HEAD /v1/models HTTP/1.1\r\nHost: x\r\n\r\nGET /%68ealth HTTP/1.1\r\nHost: x\r\n\r\n"));
  ASSERT_TRUE(c.read_to("\r\n\r\n"));
  ASSERT_TRUE(c.read_to("Content-Length: 0\r\n"));
  EXPECT_EQ(c.received().find("\"object\""), std::string::npos) << "HEAD has no body";
}

TEST(HttpServer, TargetsAsForAProxyAndIdsOnEveryAnswer) {
  Listening l;
  Client c(l.server.port());
  ASSERT_TRUE(c.send("GET http://some.where:80/health?x HTTP/1.1\r\nHost: x\r\n\r\n"));
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
  body.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
  idle.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
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
  const std::string refused = more.back()->answer();
  EXPECT_EQ(status_of(refused), 503);
  EXPECT_NE(refused.find("Retry-After: "), std::string::npos);
  EXPECT_NE(refused.find("\"service_unavailable_error\""), std::string::npos) << refused;
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

TEST(HttpServer, MakesRoomForItsConnections) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{200, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const Listening l({.max_connections = 300});
  rlimit now{};
  ::getrlimit(RLIMIT_NOFILE, &now);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(now.rlim_cur, std::min<rlim_t>(556, before.rlim_max));
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
