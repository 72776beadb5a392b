// SPDX-License-Identifier: Apache-2.0
// A client's side of WebSocket (RFC 6455), over libcurl: one text message at a time, each way. For one thread.
#pragma once

#include <memory>
#include <string>

namespace apus {

class WebSocket {
 public:
  // `url` as of HTTP: http://HOST:PORT/PATH, https://... Fault::Io, with why, also where whoever answers there speaks
  // something else.
  WebSocket(const std::string& url, double seconds);
  ~WebSocket();
  WebSocket(const WebSocket&) = delete;

  void send(const std::string& text);
  // The next message; Fault::Io when none has come within so many seconds, or the other side is gone.
  std::string receive(double seconds);

 private:
  struct Connection;
  const std::unique_ptr<Connection> connection_;
};

// The frame of a message that a client sends, with its mask; and for servers of tests one without. Pure.
std::string web_socket_frame(int kind, const std::string& text, const std::string& mask);

}  // namespace apus
