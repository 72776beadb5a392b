// SPDX-License-Identifier: Apache-2.0
// For tests over real sockets: a served model that listens, and a client that sends exactly what it is told.
#pragma once

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "serve/http_server.h"
#include "tests/serve/test_server.h"

namespace apus::test {

// A client that does exactly what it is told, byte by byte.
class Client {
 public:
  explicit Client(int port, SSL_CTX* tls = nullptr) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    if (!tls) return;
    tls_ = SSL_new(tls);
    SSL_set_fd(tls_, socket_);
    connected_ = connected_ && SSL_connect(tls_) == 1;
  }
  ~Client() { leave(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  bool connected() const { return connected_; }
  void leave() {
    SSL_free(std::exchange(tls_, nullptr));
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  void half_close() { ::shutdown(socket_, SHUT_WR); }
  bool send(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = tls_ ? SSL_write(tls_, bytes.data() + at, static_cast<int>(bytes.size() - at))
                             : ::send(socket_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return false;
      at += static_cast<size_t>(n);
    }
    return true;
  }
  // Reads until `end` has been seen; false at the end of the connection or after long silence.
  bool read_to(const std::string& end) {
    while (in_.find(end) == std::string::npos)
      if (!read_some(20'000)) return false;
    return true;
  }
  bool is_closed() {  // by the server, sooner or later
    while (read_some(20'000)) {}
    return ended_;
  }
  // One whole answer with a length: head and body; taken off what was read.
  std::string answer() {
    if (!read_to("\r\n\r\n")) return "";
    const size_t head = in_.find("\r\n\r\n") + 4, at = in_.find("Content-Length: ");
    const size_t length = at < head ? std::stoul(in_.substr(at + 16)) : 0;
    while (in_.size() < head + length)
      if (!read_some(20'000)) return "";
    const std::string all = in_.substr(0, head + length);
    in_.erase(0, head + length);
    return all;
  }
  const std::string& received() const { return in_; }

 private:
  bool read_some(int milliseconds) {
    pollfd p{socket_, POLLIN, 0};
    if (!(tls_ && SSL_pending(tls_) > 0) && ::poll(&p, 1, milliseconds) <= 0) return false;
    char block[65536];
    const ssize_t n = tls_ ? SSL_read(tls_, block, sizeof block) : ::recv(socket_, block, sizeof block, 0);
    if (n <= 0) {
      ended_ = true;
      return false;
    }
    in_.append(block, static_cast<size_t>(n));
    return true;
  }
  int socket_;
  SSL* tls_ = nullptr;
  bool connected_ = false, ended_ = false;
  std::string in_;
};

inline std::string request(const std::string& path, const std::string& body, const std::string& headers = "") {
  return str("POST ", path, " HTTP/1.1\r\nHost: x\r\n", headers, "Content-Length: ", body.size(), "\r\n\r\n", body);
}
inline std::string chat(const char* more = "") {
  return request("/v1/chat/completions", str(R"({"messages": [{"role": "user", "content": "hi"}])", more, "}"));
}
inline int status_of(const std::string& answer) { return answer.size() > 12 ? std::stoi(answer.substr(9, 3)) : 0; }

struct Listening : Served {
  explicit Listening(HttpServerSpec spec = {}, ApiSpec api_spec = {.verbose = false})
      : served(api(std::move(api_spec))), server(local(std::move(spec)), served) {}
  static HttpServerSpec local(HttpServerSpec spec) {
    spec.host = "127.0.0.1";
    spec.port = 0;
    return spec;
  }
  ~Listening() { server.stop(); }
  std::shared_ptr<Api> served;
  HttpServer server;
};

}  // namespace apus::test
