// SPDX-License-Identifier: Apache-2.0
#include "devices/ascend/lengths.h"

#include <ATen/ops/ones.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace apus::ascend {

const at::Tensor& causal_mask(at::Device device) {
  static std::mutex mutex;
  static auto* masks = new std::map<int, at::Tensor>;  // never destroyed: the device's library may be gone by then
  const std::lock_guard lock(mutex);
  at::Tensor& mask = (*masks)[device.index()];
  if (!mask.defined()) mask = at::ones({2048, 2048}, at::TensorOptions(at::kCPU).dtype(at::kBool)).triu(1).to(device);
  return mask;
}

Extent extent(const std::vector<int64_t>& cumulative) {
  Extent e{INT64_MAX, 0};
  for (size_t s = 0; s + 1 < cumulative.size(); ++s) {
    const int64_t length = cumulative[s + 1] - cumulative[s];
    e.shortest = std::min(e.shortest, length), e.longest = std::max(e.longest, length);
  }
  return e;
}

}  // namespace apus::ascend
