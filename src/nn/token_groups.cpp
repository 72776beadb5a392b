// SPDX-License-Identifier: Apache-2.0
#include "nn/token_groups.h"

#include <ATen/ops/tensor.h>

#include <algorithm>

#include "base/error.h"

namespace apus {
namespace {

TokenGroups::Half grouped_half(const std::vector<int32_t>& lengths, int64_t first, int64_t size, at::Device device) {
  std::vector<int32_t> ends = {0};
  TokenGroups::Half half;
  for (const int32_t length : lengths)
    for (int64_t begin = 0, own = first; begin < length; begin += own, own = size) {
      own = std::min<int64_t>(own, length - begin);
      ends.push_back(ends.back() + static_cast<int32_t>(own));
      half.longest = std::max(half.longest, own);
    }
  half.cu = at::tensor(ends, at::kInt).to(device);
  return half;
}

}  // namespace

TokenGroups token_groups(const std::vector<int32_t>& lengths, int64_t size, at::Device device) {
  require(size > 1, Fault::Bug, "groups of ", size, " tokens");
  return {grouped_half(lengths, size, size, device), grouped_half(lengths, (size + 1) / 2, size, device)};
}

}  // namespace apus
