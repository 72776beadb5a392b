// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/device.h"

namespace apus::ascend {

// The communicator of tensors on NPUs, over the vendor's collective library. `ranks`: its members, this one among them.
std::unique_ptr<Comm> hccl_connect(const Rendezvous& rendezvous, const std::vector<int>& ranks);

}  // namespace apus::ascend
