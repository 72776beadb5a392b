// SPDX-License-Identifier: Apache-2.0
#include "tensor/host_copy.h"

#include <array>
#include <mutex>

namespace apus {

namespace {

uint32_t version_of(const at::Tensor& t) {
  return t.is_inference() ? 0 : t.unsafeGetTensorImpl()->version_counter().current_version();
}

struct Known {
  at::Tensor tensor;
  uint32_t version = 0;
  HostNumbers numbers;
  bool is_at(const at::Tensor& t) const {
    return tensor.defined() && tensor.storage().unsafeGetStorageImpl() == t.storage().unsafeGetStorageImpl() &&
           tensor.storage_offset() == t.storage_offset() && tensor.numel() == t.numel() &&
           tensor.scalar_type() == t.scalar_type();
  }
};

struct Memory {
  std::mutex mutex;
  std::array<Known, 16> last;
  size_t next = 0;

  Known* find(const at::Tensor& t) {
    for (Known& k : last)
      if (k.is_at(t)) return &k;
    return nullptr;
  }
  void keep(const at::Tensor& t, HostNumbers numbers) {
    Known* known = find(t);
    if (!known) known = &last[next++ % last.size()];
    *known = {t.detach(), version_of(t), std::move(numbers)};
  }
};

Memory& memory() {
  static auto* const one = new Memory;  // never destroyed: the device's library may be gone by then
  return *one;
}

HostNumbers numbers_of(const at::Tensor& host) {
  const at::Tensor flat = host.to(at::kCPU, at::kLong).contiguous();
  const auto* const first = flat.data_ptr<int64_t>();
  return std::make_shared<const std::vector<int64_t>>(first, first + flat.numel());
}

}  // namespace

void know_on_host(const at::Tensor& there, const at::Tensor& host) {
  HostNumbers numbers = numbers_of(host);
  const std::lock_guard lock(memory().mutex);
  memory().keep(there, std::move(numbers));
}

HostNumbers known_on_host(const at::Tensor& there) {
  const std::lock_guard lock(memory().mutex);
  const Known* known = memory().find(there);
  return known && known->version == version_of(there) ? known->numbers : nullptr;
}

HostNumbers on_host(const at::Tensor& there) {
  if (HostNumbers known = known_on_host(there)) return known;
  HostNumbers numbers = numbers_of(there);
  const std::lock_guard lock(memory().mutex);
  memory().keep(there, numbers);
  return numbers;
}

}  // namespace apus
