// SPDX-License-Identifier: Apache-2.0
#include "stream_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace apus::bench {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Address address_of(const std::string& url) {
  require(url.starts_with("http://"), Fault::Usage, url, ": only http:// addresses are measured");
  const std::string rest = url.substr(7);
  const size_t slash = std::min(rest.find('/'), rest.size()), colon = rest.substr(0, slash).find(':');
  Address a;
  a.host = rest.substr(0, std::min(colon, slash));
  if (colon != std::string::npos) a.port = std::atoi(rest.substr(colon + 1, slash - colon - 1).c_str());
  a.path = rest.substr(slash);
  while (a.path.ends_with('/')) a.path.pop_back();
  if (a.path.empty()) a.path = "/v1";
  return a;
}

bool Connection::open() {
  if (socket_ >= 0) return true;
  buffer_.clear();
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(address_.host.c_str(), std::to_string(address_.port).c_str(), &hints, &found) != 0) return false;
  for (addrinfo* a = found; a && socket_ < 0; a = a->ai_next) {
    socket_ = ::socket(a->ai_family, a->ai_socktype, a->ai_protocol);
    if (socket_ >= 0 && ::connect(socket_, a->ai_addr, a->ai_addrlen) != 0) close();
  }
  ::freeaddrinfo(found);
  if (socket_ < 0) return false;
  const timeval limit{static_cast<time_t>(timeout_), 0};
  const int on = 1;
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return true;
}

void Connection::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

bool Connection::send_request(const std::string& method, const std::string& path, const std::string& body) {
  if (!open()) return false;
  std::string text = method + " " + path + " HTTP/1.1\r\nHost: " + address_.host + "\r\n";
  if (method == "POST")
    text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  text += "\r\n" + body;
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return close(), false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

bool Connection::fill() {
  char block[16384];
  const ssize_t n = ::recv(socket_, block, sizeof block, 0);
  if (n <= 0) return false;
  buffer_.append(block, static_cast<size_t>(n));
  return true;
}

bool Connection::line(std::string& out) {
  size_t end;
  while ((end = buffer_.find('\n')) == std::string::npos)
    if (!fill()) return false;
  out = buffer_.substr(0, end);
  if (out.ends_with('\r')) out.pop_back();
  buffer_.erase(0, end + 1);
  return true;
}

bool Connection::read_head(Reply& reply) {
  std::string text;
  if (!line(text) || !text.starts_with("HTTP/1.")) return false;
  reply.status = std::atoi(text.c_str() + 9);
  chunked_ = false, keeps_ = text.starts_with("HTTP/1.1"), length_ = -1;
  while (line(text) && !text.empty()) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    if (text.starts_with("transfer-encoding:")) chunked_ = text.find("chunked") != std::string::npos;
    if (text.starts_with("content-length:")) length_ = std::atoll(text.c_str() + 15);
    if (text.starts_with("connection:")) keeps_ = text.find("close") == std::string::npos;
  }
  return true;
}

bool Connection::read_piece(std::string& out) {
  out.clear();
  if (chunked_) {
    std::string size;
    if (!line(size)) return false;
    const size_t wanted = std::strtoul(size.c_str(), nullptr, 16);
    while (buffer_.size() < wanted + 2)
      if (!fill()) return false;
    out = buffer_.substr(0, wanted);
    buffer_.erase(0, wanted + 2);
    return true;
  }
  if (length_ == 0) return true;
  if (buffer_.empty() && !fill()) return length_ < 0;  // without a length the end of the connection is the end
  const size_t take = length_ < 0 ? buffer_.size() : std::min(buffer_.size(), static_cast<size_t>(length_));
  out = buffer_.substr(0, take);
  buffer_.erase(0, take);
  if (length_ > 0) length_ -= static_cast<int64_t>(take);
  return true;
}

bool Connection::read_body(Reply& reply) {
  for (std::string piece; read_piece(piece);) {
    if (piece.empty()) return reply.whole = true;
    reply.body += piece;
    if (!chunked_ && length_ == 0) return reply.whole = true;
  }
  return false;
}

Reply Connection::get(const std::string& path) {
  Reply reply;
  if (!send_request("GET", path, "") || !read_head(reply) || !read_body(reply)) {
    reply.error = std::strerror(errno);
    close();
  } else if (!keeps_) {
    close();
  }
  return reply;
}

template <class F>
bool Connection::each_event(const F& f) {
  std::string text;
  for (std::string piece; read_piece(piece);) {
    if (piece.empty()) return false;  // an end without [DONE]
    text += piece;
    for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
      std::string one = text.substr(0, end);
      if (one.ends_with('\r')) one.pop_back();
      if (!one.starts_with("data:")) continue;
      one.erase(0, one.starts_with("data: ") ? 6 : 5);
      if (one == "[DONE]") {
        if (chunked_)
          read_piece(piece);  // the last, empty chunk
        else
          keeps_ = false;
        return true;
      }
      if (!f(one)) return true;
    }
  }
  return false;
}

Timed Connection::stream(const Json& body) {
  Timed timed;
  const double begin = now();
  double last = begin;
  Reply reply;
  if (!send_request("POST", address_.path + "/completions", json_text(body)) || !read_head(reply)) {
    timed.error = "no answer: " + std::string(std::strerror(errno));
    return close(), timed;
  }
  if (reply.status != 200) {
    read_body(reply);
    timed.error = str(reply.status, " ", reply.body.substr(0, 200));
    return close(), timed;
  }
  const bool whole = each_event([&](const std::string& data) {
    const Json event = Json::parse(data, nullptr, false);
    if (!event.is_object()) return timed.error = "an event that is no JSON: " + data.substr(0, 100), false;
    if (event.contains("error")) return timed.error = json_text(event["error"]), false;
    const int64_t before = timed.new_tokens;
    if (event.contains("usage") && event["usage"].is_object()) {
      timed.prompt_tokens = event["usage"].value("prompt_tokens", int64_t{0});
      timed.new_tokens = event["usage"].value("completion_tokens", int64_t{0});
    }
    // A token may show no text yet, and not every server counts in every event.
    const bool choice = event.contains("choices") && !event["choices"].empty();
    const bool says = choice && (timed.new_tokens > before || !event["choices"][0].value("text", "").empty());
    if (!says) return true;
    const double at = now();
    if (timed.first == 0)
      timed.first = at - begin;
    else
      timed.gaps.push_back(at - last);
    last = at;
    return true;
  });
  if (!whole && timed.error.empty()) timed.error = "the answer broke off";
  timed.ok = timed.error.empty();
  if (!timed.ok || !keeps_) close();
  return timed;
}

bool Connection::stream_and_leave(const Json& body, int pieces) {
  Reply reply;
  if (!send_request("POST", address_.path + "/completions", json_text(body)) || !read_head(reply) ||
      reply.status != 200)
    return close(), false;
  each_event([&](const std::string&) { return --pieces > 0; });
  close();
  return true;
}

}  // namespace apus::bench
