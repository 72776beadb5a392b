// SPDX-License-Identifier: Apache-2.0
#include "tensor/late_copy.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <thread>
#include <utility>

#include "tensor/upload.h"

namespace apus {

LateCopy::LateCopy(at::Tensor there) : there_(std::move(there)), host_(there_) {
  const at::Device device = there_.device();
  if (device.is_cpu()) return;
  int64_t offset = 0;
  host_ = part(staging(static_cast<int64_t>(there_.nbytes()), device), offset, there_.numel(), there_.scalar_type())
              .view(there_.sizes());
  host_.copy_(there_, /*non_blocking=*/true);
  made_.emplace(device.type());
  made_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

const at::Tensor& LateCopy::wait() {
  // Not every libtorch has events that can be waited for. Nothing sleeps here: a step may take less than a pause.
  while (made_ && !made_->query()) std::this_thread::yield();
  return host_;
}

}  // namespace apus
