// SPDX-License-Identifier: Apache-2.0
#include "nn/step.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace apus {

KvCache::KvCache(Spec spec, at::TensorOptions options) : spec_(spec) {
  // Zeros, not garbage: a block that is read before it is full must not hold NaN.
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    k_.push_back(at::zeros({spec.blocks, spec.block_size, spec.kv_heads, spec.head_dim}, options));
    v_.push_back(at::zeros({spec.blocks, spec.block_size, spec.kv_heads, spec.head_dim}, options));
  }
}

int64_t KvCache::bytes_per_block(Spec spec, int64_t element_size) {
  return 2 * spec.layers * spec.block_size * spec.kv_heads * spec.head_dim * element_size;
}

Step packed_step(const std::vector<int32_t>& lengths, at::Device device) {
  std::vector<int32_t> cumulative{0};
  std::vector<int64_t> position;
  Step step;
  for (const int32_t length : lengths) {
    for (int32_t i = 0; i < length; ++i) position.push_back(i);
    cumulative.push_back(cumulative.back() + length);
    step.max_q = std::max<int64_t>(step.max_q, length);
  }
  step.position = at::tensor(position, at::kLong).to(device);
  step.cu_q = step.cu_k = at::tensor(cumulative, at::kInt).to(device);
  step.length_q = step.length_k = lengths;
  step.max_k = step.max_q;
  return step;
}

}  // namespace apus
