// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/device.h"

namespace apus::cpu {

// The communicator of CPU tensors, over sockets. `ranks`: its members, this one among them.
std::unique_ptr<Comm> socket_comm(const Rendezvous& rendezvous, const std::vector<int>& ranks);

}  // namespace apus::cpu
