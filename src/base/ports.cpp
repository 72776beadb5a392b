// SPDX-License-Identifier: Apache-2.0
#include "base/ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <random>

#include "base/descriptor.h"

namespace apus {
namespace {

constexpr int kFirst = 10240;  // below it are the ports of services

// Where the ports begin that the system gives to connections which go out.
int first_of_outgoing() {
  int first = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first;
  return first;
}

// The port that it gets; 0 asks the system for one.
std::optional<int> bound(int port) {
  const Descriptor probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (!probe.is_open() || ::bind(probe.number(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(probe.number(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return std::nullopt;
  return ntohs(address.sin_port);
}

}  // namespace

// Whoever asks listens there a moment later: until then neither a connection nor another who asks is likely to get it.
std::optional<int> free_port() {
  std::random_device any;
  const int end = first_of_outgoing();
  for (int tries = 0; end > 2 * kFirst && tries < 100; ++tries)
    if (const auto port = bound(std::uniform_int_distribution<int>(kFirst, end - 1)(any))) return port;
  return bound(0);
}

}  // namespace apus
