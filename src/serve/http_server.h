// SPDX-License-Identifier: Apache-2.0
// The transport: HTTP/1.1 with keep-alive, chunked streams and TLS on one thread of its own, with limits and time-outs
// against clients that are slow, silent, too many or too loud.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "serve/http.h"

namespace apus {

struct HttpServerSpec {
  std::string host = "0.0.0.0";
  int port = 8000;                       // 0: any free one
  int ports_to_try = 100;                // when it is taken, the following ones
  std::string tls_key, tls_certificate;  // files; empty: no TLS
  int64_t body_limit = 32 << 20;
  int64_t max_connections = 4096;
  // From the first byte of a request (or from the connection) to the end of its headers.
  int header_seconds = 20;
  int body_seconds = 120;          // for the whole body
  int idle_seconds = 75;           // between two requests
  int write_seconds = 60;          // a client that takes no byte for so long is cut off
  size_t unsent_limit = 32 << 20;  // bytes that may wait for a slow reader
};

class HttpServer {
 public:
  // Binds; Fault::Usage or Fault::Io when it cannot.
  HttpServer(HttpServerSpec spec, std::shared_ptr<HttpService> service);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  int64_t connections() const;
  // No new connections; those that are there stay until their answers are complete.
  void stop_accepting();
  void stop();  // closes all and ends the thread

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace apus
