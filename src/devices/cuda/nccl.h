// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/device.h"

namespace apus::cuda {

// The communicator of tensors on CUDA devices: NCCL through c10d. `ranks`: its members, this one among them.
std::unique_ptr<Comm> nccl_connect(const Rendezvous& rendezvous, const std::vector<int>& ranks);

}  // namespace apus::cuda
