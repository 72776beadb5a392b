// SPDX-License-Identifier: Apache-2.0
// An HTTP exchange as the API sees it: a request, and a reply that can be given from any thread. The transport is
// http_server; tests put others in its place.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace apus {

struct HttpCall {
  std::string id;                                 // X-Request-Id: the client's, or made here
  std::string peer;                               // address and port
  std::string method, target, path, query, body;  // target: as it was sent; path: decoded, without the query
  std::map<std::string, std::string> headers;     // names in lower case
  bool bad_path = false;                          // it has a NUL
  std::string header(const std::string& name) const {
    const auto it = headers.find(name);
    return it == headers.end() ? "" : it->second;
  }
};

struct HttpAnswer {
  int status = 200;
  std::string body, content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// One reply, given by send(), or by begin(), any number of write()s and end(). Thread-safe. No call blocks, and once
// the client has left no call does anything. Dropping it without an answer ends the connection.
class Responder {
 public:
  virtual ~Responder() = default;
  virtual void send(HttpAnswer answer) = 0;
  virtual void begin(HttpAnswer head) = 0;  // its body is the first part
  virtual void write(std::string part) = 0;
  virtual void end() = 0;
  // Called once when the client leaves before the end, possibly at once, on any thread.
  virtual void on_gone(std::function<void()> f) = 0;
};

class HttpService {
 public:
  virtual ~HttpService() = default;
  // Called when the headers are there, before the body is read. An answer given here is final. Must not block.
  virtual std::optional<HttpAnswer> admit(const HttpCall& call) = 0;
  virtual void serve(std::shared_ptr<const HttpCall> call, std::shared_ptr<Responder> reply) = 0;  // must not block
  // The answer to a request that was not HTTP, too large, or too slow.
  virtual HttpAnswer broken(const HttpCall& call, int status, const std::string& why) = 0;
};

}  // namespace apus
