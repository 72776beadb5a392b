// SPDX-License-Identifier: Apache-2.0
// The server over real sockets: keep-alive, pipelining, slow, silent, leaving and loud clients, limits, TLS, draining.
#include "serve/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "tests/serve/test_server.h"
#include "tests/eventually.h"

namespace apus {
namespace {
using test::Served;

// A client that does exactly what it is told, byte by byte.
class Client {
 public:
  explicit Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { leave(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  bool connected() const { return connected_; }
  void leave() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  void half_close() { ::shutdown(socket_, SHUT_WR); }
  bool send(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = ::send(socket_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return false;
      at += static_cast<size_t>(n);
    }
    return true;
  }
  // Reads until `end` has been seen; false at the end of the connection or after ten seconds.
  bool read_to(const std::string& end) {
    while (in_.find(end) == std::string::npos)
      if (!read_some(10'000)) return false;
    return true;
  }
  bool closed_within(int milliseconds) {
    const Stopwatch watch;
    while (watch.seconds() * 1000 < milliseconds)
      if (!read_some(std::max(1, milliseconds - static_cast<int>(watch.seconds() * 1000)))) return ended_;
    return false;
  }
  // One whole answer with a length: head and body; taken off what was read.
  std::string answer() {
    if (!read_to("\r\n\r\n")) return "";
    const size_t head = in_.find("\r\n\r\n") + 4, at = in_.find("Content-Length: ");
    const size_t length = at < head ? std::stoul(in_.substr(at + 16)) : 0;
    while (in_.size() < head + length)
      if (!read_some(10'000)) return "";
    const std::string all = in_.substr(0, head + length);
    in_.erase(0, head + length);
    return all;
  }
  const std::string& received() const { return in_; }

 private:
  bool read_some(int milliseconds) {
    pollfd p{socket_, POLLIN, 0};
    if (::poll(&p, 1, milliseconds) <= 0) return false;
    char block[65536];
    const ssize_t n = ::recv(socket_, block, sizeof block, 0);
    if (n <= 0) {
      ended_ = true;
      return false;
    }
    in_.append(block, static_cast<size_t>(n));
    return true;
  }
  int socket_;
  bool connected_ = false, ended_ = false;
  std::string in_;
};

std::string request(const std::string& path, const std::string& body, const std::string& headers = "") {
  return str("POST ", path, " HTTP/1.1\r\nHost: x\r\n", headers, "Content-Length: ", body.size(), "\r\n\r\n", body);
}
std::string chat(const char* more = "") {
  return request("/v1/chat/completions", str(R"({"messages": [{"role": "user", "content": "hi"}])", more, "}"));
}
int status_of(const std::string& answer) { return answer.size() > 12 ? std::stoi(answer.substr(9, 3)) : 0; }

struct Listening : Served {
  explicit Listening(HttpServerSpec spec = {}, ApiSpec api_spec = {.verbose = false}) : served(api(std::move(api_spec))), server(local(std::move(spec)), served) {}
  static HttpServerSpec local(HttpServerSpec spec) {
    spec.host = "127.0.0.1";
    spec.port = 0;
    return spec;
  }
  ~Listening() { server.stop(); }
  std::shared_ptr<Api> served;
  HttpServer server;
};

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
  EXPECT_TRUE(c.closed_within(3000));
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
  ASSERT_TRUE(c.send(request("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "hi"}], "stream": true})", "X-Request-Id: mine-1\r\n")));
  ASSERT_TRUE(c.read_to("0\r\n\r\n"));
  EXPECT_NE(c.received().find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_NE(c.received().find("X-Request-Id: mine-1"), std::string::npos);
  EXPECT_NE(c.received().find("data: [DONE]\n\n"), std::string::npos);
  Client old(l.server.port());  // HTTP/1.0 knows no chunks
  const std::string body = R"({"messages": [{"role": "user", "content": "hi"}], "stream": true})";
  ASSERT_TRUE(old.send(str("POST /v1/chat/completions HTTP/1.0\r\nX-Request-Id: a b\r\nContent-Length: ", body.size(), "\r\n\r\n", body)));
  EXPECT_TRUE(old.closed_within(5000));
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
    EXPECT_TRUE(c.closed_within(5000));
    return status_of(a);
  };
  EXPECT_EQ(answered("hello there\r\n\r\n"), 400);
  EXPECT_EQ(answered("GET /health HTTP/7.7\r\n\r\n"), 400);
  EXPECT_EQ(answered("POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n"), 400);
  EXPECT_EQ(answered("GET /health HTTP/1.1\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n"), 431);
  const std::string key = "x-api-key: k\r\n";
  EXPECT_EQ(answered("POST /tokenize HTTP/1.1\r\n" + key + "Content-Length: 99999999\r\n\r\n" + std::string(3 << 20, 'x')), 413);
  EXPECT_EQ(answered("POST /tokenize HTTP/1.1\r\n" + key + "Transfer-Encoding: chunked\r\n\r\n200000\r\n" + std::string(0x200000, 'x') + "\r\n0\r\n\r\n"), 413);
  EXPECT_EQ(answered("POST /tokenize HTTP/1.1\r\nContent-Length: 500000\r\n\r\n" + std::string(500'000, 'x')), 401) << "before the body is read";
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

TEST(HttpServer, SlowAndSilentClientsAreCutOff) {
  Listening l({.header_seconds = 1, .body_seconds = 1, .idle_seconds = 1});
  Client silent(l.server.port()), half(l.server.port()), body(l.server.port()), idle(l.server.port());
  half.send("POST /tokenize HT");
  body.send("POST /tokenize HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
  idle.send("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_EQ(status_of(idle.answer()), 200);
  for (Client* c : {&silent, &half, &body, &idle}) EXPECT_TRUE(c->closed_within(4000));
  Client dripping(l.server.port());  // a byte now and then does not keep it open
  const Stopwatch watch;
  while (watch.seconds() < 4 && dripping.send("G")) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(watch.seconds(), 3.5);
}

TEST(HttpServer, WhoLeavesIsForgottenAtOnce) {
  Listening l;
  l.engine.hold = true;
  const auto begin = [&](Client& c, const char* more) {
    const size_t before = l.engine.seen().size();
    ASSERT_TRUE(c.send(chat(more)));
    for (int i = 0; i < 1000 && l.engine.seen().size() == before; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
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
  for (int i = 0; i < 200 && l.server.connections() > 1; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(l.server.connections(), 1);
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
  EXPECT_TRUE(idle.closed_within(2000));
  EXPECT_TRUE(busy.read_to("data: [DONE]")) << "what is under way ends";
  EXPECT_TRUE(busy.closed_within(4000));
  EXPECT_FALSE(Client(l.server.port()).connected());
  EXPECT_TRUE(test::eventually([&] { return l.served->active() == 0; }));
}

TEST(HttpServer, StopsWhileAnswersAreMade) {
  auto l = std::make_unique<Listening>();
  l->engine.hold = true;
  Client a(l->server.port()), b(l->server.port());
  a.send(chat(R"(, "stream": true)"));
  b.send(chat());
  for (int i = 0; i < 1000 && l->engine.seen().size() < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  l->server.stop();
  EXPECT_TRUE(a.closed_within(1000));
  EXPECT_TRUE(b.closed_within(1000));
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
  EXPECT_THROW(HttpServer({.host = "127.0.0.1", .port = 0, .tls_key = "/none", .tls_certificate = "/none"}, api), Error);
}

}  // namespace
}  // namespace apus
