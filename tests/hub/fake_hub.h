// SPDX-License-Identifier: Apache-2.0
// A hub on 127.0.0.1 for tests: answers from a table, understands ranges, and misbehaves as told.
#pragma once

#include <unistd.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/loopback.h"

namespace apus {

struct FakeAnswer {
  int status = 200;
  std::string body;
  std::map<std::string, std::string> headers;
};

struct FakeRequest {
  std::string method, path, head, body;  // path with query
};

class FakeHub {
 public:
  // Asked before the table; nothing: the table answers.
  using Handler = std::function<std::optional<FakeAnswer>(const FakeRequest&)>;
  void handle(Handler handler) {
    const std::lock_guard lock(mutex_);
    handler_ = std::move(handler);
  }
  FakeHub() : listener_(16) {
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeHub() {
    stopping_ = true;
    listener_.close();
    thread_.join();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(listener_.port()); }
  void put(const std::string& path, FakeAnswer answer) {  // path with query
    const std::lock_guard lock(mutex_);
    answers_[path] = std::move(answer);
  }
  void remove(const std::string& path) {
    const std::lock_guard lock(mutex_);
    answers_.erase(path);
  }
  void cut_after(size_t bytes) { cut_ = bytes; }  // the next body breaks off there
  void ignore_ranges() { ignore_ranges_ = true; }
  void refuse_all(bool refuse) { refuse_ = refuse; }
  std::vector<std::string> requests() {  // "GET /path range=... auth=..."
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    requests_.clear();
  }

 private:
  void serve() {
    while (!stopping_) {
      const int client = listener_.accept();
      if (client < 0) return;
      answer(client);
      ::close(client);
    }
  }
  static std::string header(const std::string& request, const std::string& name) {
    const size_t at = request.find("\r\n" + name + ": ");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 4;
    return request.substr(begin, request.find("\r\n", begin) - begin);
  }
  void answer(int client) {
    std::string request;
    char block[4096];
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = ::recv(client, block, sizeof block, 0);
      if (got <= 0) return;
      request.append(block, static_cast<size_t>(got));
    }
    const size_t head_end = request.find("\r\n\r\n") + 4;
    const std::string length = header(request, "Content-Length");
    const size_t whole = head_end + (length.empty() ? 0 : std::stoul(length));
    while (request.size() < whole) {
      const ssize_t got = ::recv(client, block, sizeof block, 0);
      if (got <= 0) return;
      request.append(block, static_cast<size_t>(got));
    }
    const std::string sent = request.substr(head_end);
    request.resize(head_end);
    const size_t space = request.find(' ');
    const std::string method = request.substr(0, space),
                      path = request.substr(space + 1, request.find(' ', space + 1) - space - 1);
    const std::string range = header(request, "Range");
    FakeAnswer reply{404, "{\"error\":\"none\"}", {}};
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(
          method + " " + path + (range.empty() ? "" : " range=" + range) +
          (header(request, "Authorization").empty() ? "" : " auth=" + header(request, "Authorization")));
      const auto handled = handler_ ? handler_({method, path, request, sent}) : std::nullopt;
      if (handled)
        reply = *handled;
      else if (const auto it = answers_.find(path); it != answers_.end())
        reply = it->second;
    }
    if (refuse_) reply = {503, "busy", {}};
    size_t from = 0;
    if (reply.status == 200 && range.starts_with("bytes=") && !ignore_ranges_) {
      from = std::stoul(range.substr(6));
      reply.status = from < reply.body.size() ? 206 : 416;
      reply.headers["Content-Range"] = "bytes " + std::to_string(from) + "-" + std::to_string(reply.body.size() - 1) +
                                       "/" + std::to_string(reply.body.size());
    }
    std::string body = reply.status == 416 ? "" : reply.body.substr(std::min(from, reply.body.size()));
    std::string head = "HTTP/1.1 " + std::to_string(reply.status) +
                       " X\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    for (const auto& [name, value] : reply.headers) head += name + ": " + value + "\r\n";
    if (method == "HEAD") body.clear();
    if (const size_t cut = cut_; cut > 0 && body.size() > cut) {
      body.resize(cut);
      cut_ = 0;
    }
    head += "\r\n" + body;
    ::send(client, head.data(), head.size(), MSG_NOSIGNAL);
  }

  test::Loopback listener_;
  std::atomic<bool> stopping_{false}, refuse_{false}, ignore_ranges_{false};
  std::atomic<size_t> cut_{0};
  std::mutex mutex_;
  std::map<std::string, FakeAnswer> answers_;
  Handler handler_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace apus
