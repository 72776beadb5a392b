// SPDX-License-Identifier: Apache-2.0
#include "hub/web_socket.h"

#include <curl/curl.h>
#include <poll.h>

#include <algorithm>
#include <random>

#include "base/base64.h"
#include "base/clock.h"
#include "base/error.h"
#include "hub/http.h"

namespace apus {
namespace {

constexpr size_t kMostBytes = 16 << 20;  // of a message
constexpr size_t kMostHead = 64 << 10;
constexpr double kGoodbye = 0.5;  // seconds that the other side has for its own
enum Kind { kGoesOn = 0, kText = 1, kBinary = 2, kClose = 8, kPing = 9, kPong = 10 };

std::string random_bytes(size_t count) {
  static thread_local std::random_device device;
  std::string out;
  while (out.size() < count) out += static_cast<char>(device());
  return out;
}

struct Address {
  std::string host, path;  // as the request says them
};

Address parts_of(const std::string& url) {
  const size_t begin = url.find("://") + 3, end = std::min(url.find('/', begin), url.size());
  return {url.substr(begin, end - begin), end < url.size() ? url.substr(end) : "/"};
}

}  // namespace

std::string web_socket_frame(int kind, const std::string& text, const std::string& mask) {
  std::string out(1, static_cast<char>(0x80 | kind));
  const int masked = mask.empty() ? 0 : 0x80;
  const int bytes = text.size() < 126 ? 0 : text.size() < 65536 ? 2 : 8;
  out += static_cast<char>(masked | (bytes == 0 ? static_cast<int>(text.size()) : bytes == 2 ? 126 : 127));
  for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(text.size() >> (8 * i));
  out += mask;
  for (size_t i = 0; i < text.size(); ++i)
    out += mask.empty() ? text[i] : static_cast<char>(text[i] ^ mask[i % mask.size()]);
  return out;
}

struct WebSocket::Connection {
  explicit Connection(std::string to) : url(std::move(to)), curl(curl_easy_init(), curl_easy_cleanup) {
    require(curl != nullptr, Fault::Io, "libcurl cannot start");
  }

  void open(double seconds) {
    curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
    curl_easy_setopt(curl.get(), CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(curl.get(), CURLOPT_HTTPPROXYTUNNEL, 1L);
    curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl.get(), CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(seconds * 1000));
    const CURLcode code = curl_easy_perform(curl.get());
    require(code == CURLE_OK, Fault::Io, url, " cannot be reached: ", curl_easy_strerror(code));
    const Address to = parts_of(url);
    write(str("GET ", to.path, " HTTP/1.1\r\nHost: ", to.host, "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
              "User-Agent: apus\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ", base64(random_bytes(16)),
              "\r\n\r\n"),
          seconds);
    const Stopwatch watch;
    size_t end = 0;
    while ((end = arrived.find("\r\n\r\n")) == std::string::npos) {
      require(arrived.size() < kMostHead, Fault::Io, url, " answers without an end");
      read_more(seconds - watch.seconds());
    }
    const std::string first = arrived.substr(0, arrived.find('\r'));
    require(first.find(" 101") != std::string::npos, Fault::Io, url, " speaks no WebSocket: it says '", first, "'");
    arrived.erase(0, end + 4);
  }

  void wait(short for_what, double seconds) const {
    curl_socket_t socket = CURL_SOCKET_BAD;
    curl_easy_getinfo(curl.get(), CURLINFO_ACTIVESOCKET, &socket);
    pollfd one{socket, for_what, 0};
    require(seconds > 0 && ::poll(&one, 1, static_cast<int>(seconds * 1000) + 1) > 0, Fault::Io, url,
            " says nothing for too long");
  }

  void write(const std::string& bytes, double seconds) const {
    const Stopwatch watch;
    for (size_t sent = 0; sent < bytes.size();) {
      size_t count = 0;
      const CURLcode code = curl_easy_send(curl.get(), bytes.data() + sent, bytes.size() - sent, &count);
      require(code == CURLE_OK || code == CURLE_AGAIN, Fault::Io, url, " is gone: ", curl_easy_strerror(code));
      sent += count;
      if (code == CURLE_AGAIN) wait(POLLOUT, seconds - watch.seconds());
    }
  }

  void read_more(double seconds) {
    char piece[1 << 14];
    for (const Stopwatch watch;;) {
      size_t count = 0;
      const CURLcode code = curl_easy_recv(curl.get(), piece, sizeof piece, &count);
      if (code == CURLE_AGAIN) {
        wait(POLLIN, seconds - watch.seconds());
        continue;
      }
      require(code == CURLE_OK && count > 0, Fault::Io, url, " is gone");
      arrived.append(piece, count);
      return;
    }
  }

  struct Frame {
    int kind;
    bool last;
    std::string text;
  };
  Frame next(double seconds) {
    const Stopwatch watch;
    const auto have = [&](size_t bytes) {
      while (arrived.size() < bytes) read_more(seconds - watch.seconds());
    };
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(arrived[i]); };
    have(2);
    const size_t wide = (byte(1) & 0x7f) == 126 ? 2 : (byte(1) & 0x7f) == 127 ? 8 : 0;
    have(2 + wide);
    uint64_t size = wide == 0 ? byte(1) & 0x7f : 0;
    for (size_t i = 0; i < wide; ++i) size = size << 8 | byte(2 + i);
    require(size <= kMostBytes && (byte(1) & 0x80) == 0, Fault::Io, url, " sends a frame that cannot be read");
    have(2 + wide + size);
    Frame frame{byte(0) & 0x0f, (byte(0) & 0x80) != 0, arrived.substr(2 + wide, size)};
    arrived.erase(0, 2 + wide + size);
    return frame;
  }

  const std::string url;
  const std::unique_ptr<CURL, void (*)(CURL*)> curl;
  std::string arrived;
};

WebSocket::WebSocket(const std::string& url, double seconds) : connection_(std::make_unique<Connection>(url)) {
  connection_->open(seconds);
}

WebSocket::~WebSocket() {
  try {
    connection_->write(web_socket_frame(kClose, "", random_bytes(4)), kGoodbye);
    while (connection_->next(kGoodbye).kind != kClose) continue;
  } catch (const Error&) {
    return;  // the other side is gone
  }
}

void WebSocket::send(const std::string& text) {
  connection_->write(web_socket_frame(kText, text, random_bytes(4)), 60);
}

std::string WebSocket::receive(double seconds) {
  const Stopwatch watch;
  for (std::string text;;) {
    Connection::Frame frame = connection_->next(seconds - watch.seconds());
    if (frame.kind == kPing) connection_->write(web_socket_frame(kPong, frame.text, random_bytes(4)), seconds);
    require(frame.kind != kClose, Fault::Io, connection_->url, " has ended the conversation",
            frame.text.size() > 2 ? ": " + frame.text.substr(2) : "");
    if (frame.kind != kGoesOn && frame.kind != kText && frame.kind != kBinary) continue;
    text += frame.text;
    require(text.size() <= kMostBytes, Fault::Io, connection_->url, " sends more than ", kMostBytes, " bytes");
    if (frame.last) return text;
  }
}

}  // namespace apus
