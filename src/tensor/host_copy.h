// SPDX-License-Identifier: Apache-2.0
// Whole numbers of a device that the host knows as well, as it has made them or read them before: reading them has the
// host wait for all that the device was asked for.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace apus {

using HostNumbers = std::shared_ptr<const std::vector<int64_t>>;

// `there` has the numbers of `host`. The last few are remembered. Their tensors are kept alive, so that no other can
// appear at their address; one that was changed since is another one.
void know_on_host(const at::Tensor& there, const at::Tensor& host);

// Null: they are not known.
HostNumbers known_on_host(const at::Tensor& there);
// Read, where they are not known.
HostNumbers on_host(const at::Tensor& there);

}  // namespace apus
