// SPDX-License-Identifier: Apache-2.0
// A small server for tests: it answers every request with what `reply` makes of its body, which is null for a GET.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "tests/loopback.h"

namespace apus::test {

class JsonServer {
 public:
  using Reply = std::function<std::pair<int, std::string>(const Json& body)>;
  explicit JsonServer(Reply reply) : reply_(std::move(reply)), thread_([this] { serve(); }) {}
  ~JsonServer() {
    listener_.close();
    thread_.join();
    for (std::thread& worker : workers_) worker.join();
  }
  std::string url() const { return str("http://127.0.0.1:", listener_.port(), "/v1/"); }

 private:
  void serve() {
    for (int socket = listener_.accept(); socket >= 0; socket = listener_.accept())
      workers_.emplace_back([this, socket] { answer(socket); });
  }
  void answer(int socket) {
    std::string request;
    char piece[4096];
    size_t head = std::string::npos, wanted = 0;
    while (head == std::string::npos || request.size() < wanted) {
      const ssize_t count = ::recv(socket, piece, sizeof piece, 0);
      if (count <= 0) break;
      request.append(piece, static_cast<size_t>(count));
      head = request.find("\r\n\r\n");
      if (head == std::string::npos) continue;
      const size_t length = request.find("Content-Length: ");
      wanted = head + 4;
      if (length < head) wanted += static_cast<size_t>(std::stoul(request.substr(length + 16)));
    }
    const std::string sent = head == std::string::npos ? "" : request.substr(head + 4);
    const auto [status, body] = reply_(sent.empty() ? Json() : Json::parse(sent));
    const std::string text =
        str("HTTP/1.1 ", status, " x\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
            "\r\nConnection: close\r\n\r\n", body);
    ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    ::close(socket);
  }
  const Reply reply_;
  Loopback listener_{16};
  std::vector<std::thread> workers_;
  std::thread thread_;
};

}  // namespace apus::test
