// SPDX-License-Identifier: Apache-2.0
#include "tensor/upload.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "tensor/host_copy.h"

namespace apus {

namespace {
constexpr int64_t kApart = 64;  // where a tensor may begin

int64_t room(const at::Tensor& t) { return (static_cast<int64_t>(t.nbytes()) + kApart - 1) / kApart * kApart; }
}  // namespace

at::Tensor staging(int64_t bytes, at::Device device) {
  const auto raw = at::TensorOptions().dtype(at::kByte);
  if (!device.is_cpu()) {
    try {
      return at::empty({bytes}, raw.pinned_memory(true));
    } catch (const c10::Error&) {  // not for this kind of device
    }
  }
  return at::empty({bytes}, raw);
}

at::Tensor part(const at::Tensor& bytes, int64_t& offset, int64_t count, at::ScalarType type) {
  const int64_t size = count * static_cast<int64_t>(c10::elementSize(type));
  const at::Tensor numbers = bytes.narrow(0, offset, size).view(type);
  offset += size;
  return numbers;
}

at::Tensor uploaded(const at::Tensor& host, at::Device device) {
  if (device.is_cpu()) return host;
  int64_t offset = 0;
  const at::Tensor bytes = staging(static_cast<int64_t>(host.nbytes()), device);
  const at::Tensor staged = part(bytes, offset, host.numel(), host.scalar_type()).view(host.sizes());
  staged.copy_(host);
  return staged.to(device, host.scalar_type(), /*non_blocking=*/true);
}

namespace {
void move(const std::vector<at::Tensor*>& tensors, at::Device device) {
  std::vector<at::Tensor*> moved;
  int64_t bytes = 0;
  for (at::Tensor* t : tensors)
    if (t->defined() && t->device() != device) moved.push_back(t), bytes += room(*t);
  if (moved.size() < 2 || device.is_cpu()) {
    for (at::Tensor* t : moved) *t = t->to(device);
    return;
  }
  // Below what records gradients: views of one tensor would count each other's changes as their own.
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor host = staging(bytes, device);
  int64_t begin = 0;
  for (const at::Tensor* t : moved) {
    int64_t offset = begin;
    part(host, offset, t->numel(), t->scalar_type()).view(t->sizes()).copy_(*t);
    begin += room(*t);
  }
  const at::Tensor there = host.to(device, host.scalar_type(), /*non_blocking=*/true);
  begin = 0;
  for (at::Tensor* t : moved) {
    int64_t offset = begin;
    begin += room(*t);
    *t = part(there, offset, t->numel(), t->scalar_type()).view(t->sizes());
  }
}
}  // namespace

void move_together(const std::vector<at::Tensor*>& tensors, at::Device device, const std::vector<at::Tensor*>& known) {
  std::vector<at::Tensor> before;
  for (const at::Tensor* t : known) before.push_back(*t);
  move(tensors, device);
  for (size_t i = 0; i < known.size(); ++i)
    if (before[i].defined() && before[i].is_cpu() && !device.is_cpu()) know_on_host(*known[i], before[i]);
}

}  // namespace apus
