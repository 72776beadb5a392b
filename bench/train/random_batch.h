// SPDX-License-Identifier: Apache-2.0
// One sequence of random tokens, all of them learnt.
#pragma once

#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include "base/random.h"
#include "train/batch.h"

namespace apus::bench {

inline Batch random_batch(int64_t length, int64_t vocab, uint64_t seed) {
  Random random(seed);
  std::vector<int64_t> ids(static_cast<size_t>(length)), labels(ids.size(), -100);
  for (auto& id : ids) id = static_cast<int64_t>(random.below(static_cast<uint64_t>(vocab)));
  for (size_t i = 0; i + 1 < ids.size(); ++i) labels[i] = ids[i + 1];
  Batch b;
  b.id_T = at::tensor(ids, at::kLong), b.label_T = at::tensor(labels, at::kLong), b.weight_T = at::ones({length});
  b.step = packed_step({static_cast<int32_t>(length)}, at::kCPU);
  b.trained = length - 1;
  return b;
}

}  // namespace apus::bench
