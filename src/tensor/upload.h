// SPDX-License-Identifier: Apache-2.0
// Numbers of the host on their way to a device: in one copy, as each copy by itself may have the host wait for the
// device.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace apus {

// Bytes that the device copies by itself while the host goes on, where libtorch can give such.
at::Tensor staging(int64_t bytes, at::Device device);

// `count` numbers of these bytes, from `offset` on, which is behind them then.
at::Tensor part(const at::Tensor& bytes, int64_t& offset, int64_t count, at::ScalarType type);

// On the device; the host does not wait where it can have such bytes.
at::Tensor uploaded(const at::Tensor& host, at::Device device);

// Defined tensors are replaced by such on the device, which lie in one piece of memory there. Those that are there
// already stay as they are.
// Of `known` among them, whole numbers, the host remembers what they are (tensor/host_copy.h).
void move_together(const std::vector<at::Tensor*>& tensors, at::Device device,
                   const std::vector<at::Tensor*>& known = {});

}  // namespace apus
