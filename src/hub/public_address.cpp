// SPDX-License-Identifier: Apache-2.0
#include "hub/public_address.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace apus {

namespace {
// The first `bits` of an address.
struct Net4 {
  uint32_t address;
  int bits;
};
constexpr uint32_t v4(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return a << 24 | b << 16 | c << 8 | d; }
// What IANA keeps for special purposes (RFC 6890 and its successors).
constexpr Net4 kSpecial4[] = {
    {v4(0, 0, 0, 0), 8},      {v4(10, 0, 0, 0), 8},     {v4(100, 64, 0, 0), 10}, {v4(127, 0, 0, 0), 8},
    {v4(169, 254, 0, 0), 16}, {v4(172, 16, 0, 0), 12},  {v4(192, 0, 0, 0), 24},  {v4(192, 0, 2, 0), 24},
    {v4(192, 88, 99, 0), 24}, {v4(192, 168, 0, 0), 16}, {v4(198, 18, 0, 0), 15}, {v4(198, 51, 100, 0), 24},
    {v4(203, 0, 113, 0), 24}, {v4(224, 0, 0, 0), 4},    {v4(240, 0, 0, 0), 4},
};

bool is_public4(uint32_t address) {
  return std::none_of(std::begin(kSpecial4), std::end(kSpecial4), [&](const Net4& net) {
    const uint32_t mask = ~uint32_t{0} << (32 - net.bits);
    return (address & mask) == net.address;
  });
}

using Bytes16 = std::array<uint8_t, 16>;
bool begins(const Bytes16& address, std::initializer_list<uint8_t> with) {
  return std::equal(with.begin(), with.end(), address.begin());
}
uint32_t four_at(const Bytes16& a, size_t at) { return v4(a[at], a[at + 1], a[at + 2], a[at + 3]); }

bool is_public6(const Bytes16& a) {
  if (begins(a, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff})) return is_public4(four_at(a, 12));     // mapped
  if (begins(a, {0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0})) return is_public4(four_at(a, 12));  // NAT64
  if (begins(a, {0x20, 0x02})) return is_public4(four_at(a, 2));                                    // 6to4
  const bool global = (a[0] & 0xe0) == 0x20;                                                        // 2000::/3
  const bool protocols = begins(a, {0x20, 0x01}) && (a[2] & 0xfe) == 0;                             // 2001::/23
  const bool examples = begins(a, {0x20, 0x01, 0x0d, 0xb8}) || (begins(a, {0x3f, 0xff}) && a[2] < 0x10);
  return global && !protocols && !examples;
}
}  // namespace

bool is_public_address(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &address, sizeof in);
    return is_public4(ntohl(in.sin_addr.s_addr));
  }
  if (address.sa_family != AF_INET6) return false;
  sockaddr_in6 in;
  std::memcpy(&in, &address, sizeof in);
  Bytes16 bytes;
  std::memcpy(bytes.data(), &in.sin6_addr, bytes.size());
  return is_public6(bytes);
}

}  // namespace apus
