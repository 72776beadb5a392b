// SPDX-License-Identifier: Apache-2.0
// A listening socket at a free port of 127.0.0.1, for the small servers of tests.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace apus::test {

class Loopback {
 public:
  explicit Loopback(int backlog) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    socklen_t size = sizeof address;
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    ::listen(socket_, backlog);
  }
  int accept() const { return ::accept(socket_, nullptr, nullptr); }  // below 0 after close()
  void close() const {
    ::shutdown(socket_, SHUT_RDWR);
    ::close(socket_);
  }
  int port() const { return port_; }

 private:
  int socket_, port_ = 0;
};

}  // namespace apus::test
