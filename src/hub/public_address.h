// SPDX-License-Identifier: Apache-2.0
// Which addresses belong to the world, and which to this machine, its network or nobody.
#pragma once

struct sockaddr;

namespace apus {

// False for private, loopback, link-local, shared, reserved and multicast addresses, also where an IPv6 address holds
// an IPv4 one, and for what is no address of IP.
bool is_public_address(const sockaddr& address);

}  // namespace apus
