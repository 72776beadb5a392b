// SPDX-License-Identifier: Apache-2.0
// What strangers may have this program ask: the world, not this machine and its network.
#include "hub/public_address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/un.h>

#include <cstring>
#include <string>
#include <thread>

#include "hub/http.h"
#include "tests/loopback.h"

namespace apus {
namespace {

bool is_public(const std::string& text) {
  sockaddr_storage all{};
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&all);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&all);
  const bool six = text.find(':') != std::string::npos;
  all.ss_family = six ? AF_INET6 : AF_INET;
  EXPECT_EQ(inet_pton(all.ss_family, text.c_str(),
                      six ? static_cast<void*>(&v6->sin6_addr) : static_cast<void*>(&v4->sin_addr)),
            1)
      << text;
  return is_public_address(reinterpret_cast<const sockaddr&>(all));
}

TEST(PublicAddress, OfTheWorld) {
  for (const char* each : {"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0",
                           "192.167.255.255", "223.255.255.255", "2606:4700::1111", "2a00:1450:4001::200e",
                           "::ffff:1.1.1.1", "64:ff9b::8.8.8.8", "2002:808:808::1"})
    EXPECT_TRUE(is_public(each)) << each;
}

TEST(PublicAddress, OfThisMachineItsNetworkOrNobody) {
  for (const char* each : {"0.0.0.0",
                           "0.1.2.3",
                           "10.0.0.1",
                           "100.64.0.1",
                           "127.0.0.1",
                           "127.255.255.255",
                           "169.254.169.254",
                           "172.16.0.1",
                           "172.31.255.255",
                           "192.0.0.8",
                           "192.168.1.1",
                           "198.19.0.1",
                           "224.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "::127.0.0.1",
                           "::ffff:127.0.0.1",
                           "::ffff:10.0.0.1",
                           "64:ff9b::a00:1",
                           "64:ff9b:1::808:808",
                           "2002:7f00:1::",
                           "2002:c0a8:101::",
                           "2001::1",
                           "2001:db8::1",
                           "fc00::1",
                           "fd12::1",
                           "fe80::1",
                           "fec0::1",
                           "ff02::1",
                           "100::1"})
    EXPECT_FALSE(is_public(each)) << each;
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  EXPECT_FALSE(is_public_address(reinterpret_cast<const sockaddr&>(local)));
}

TEST(PublicAddress, NoConnectionIsMadeToAPrivateOne) {
  const test::Loopback server(4);
  for (const char* host : {"127.0.0.1", "localhost", "127.1", "2130706433", "[::ffff:127.0.0.1]"}) {
    HttpRequest request;
    request.url = "http://" + std::string(host) + ":" + std::to_string(server.port()) + "/";
    request.public_only = true;
    const HttpReply reply = http_request(request);
    EXPECT_EQ(reply.status, 0) << host;
    EXPECT_NE(reply.error.find("private network"), std::string::npos) << host << ": " << reply.error;
  }
  server.close();
}

TEST(PublicAddress, ASlowAnswerEnds) {
  const test::Loopback server(1);
  std::thread slow([&] {
    const int client = server.accept();
    if (client < 0) return;
    const char head[] = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
    (void)!write(client, head, sizeof head - 1);
    char more[256];
    while (read(client, more, sizeof more) > 0) continue;  // until the other side gives up
    ::close(client);
  });
  HttpRequest request;
  request.url = "http://127.0.0.1:" + std::to_string(server.port()) + "/";
  request.most_seconds = 1;
  const HttpReply reply = http_request(request);
  EXPECT_FALSE(reply.error.empty());
  server.close();
  slow.join();
}

}  // namespace
}  // namespace apus
