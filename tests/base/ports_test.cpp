// SPDX-License-Identifier: Apache-2.0
#include "base/ports.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <set>

#include "base/descriptor.h"

namespace apus {
namespace {

TEST(Ports, AFreeOneCanBeListenedAtAndIsOfNoConnectionThatGoesOut) {
  int outgoing = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> outgoing;
  std::set<int> seen;
  for (int i = 0; i < 20; ++i) {
    const auto port = free_port();
    ASSERT_TRUE(port.has_value());
    seen.insert(*port);
    if (outgoing > 20480) {
      EXPECT_LT(*port, outgoing);
    }
    const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(*port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::bind(socket.number(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket.number(), 1), 0);
  }
  EXPECT_GT(seen.size(), 10U);  // two who ask at the same moment do not get the same
}

}  // namespace
}  // namespace apus
