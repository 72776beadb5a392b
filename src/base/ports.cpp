// SPDX-License-Identifier: Apache-2.0
#include "base/ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/descriptor.h"

namespace apus {

std::optional<int> free_port() {
  const Descriptor probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (!probe.is_open() || ::bind(probe.number(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(probe.number(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return std::nullopt;
  return ntohs(address.sin_port);
}

}  // namespace apus
