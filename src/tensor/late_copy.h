// SPDX-License-Identifier: Apache-2.0
// Numbers of a device on their way to the host, which meanwhile may go on and ask the device for more.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>

namespace apus {

class LateCopy {
 public:
  explicit LateCopy(at::Tensor there);  // contiguous; nobody writes to it any more

  // On the host. What the device was asked for after the copy is not waited for, where libtorch can give memory that
  // the device writes to by itself.
  const at::Tensor& wait();

 private:
  at::Tensor there_, host_;  // what is copied must not go away before the copy is made
  std::optional<c10::Event> made_;
};

}  // namespace apus
