// SPDX-License-Identifier: Apache-2.0
// What a reference says of every sequence, asked once before a run instead of in each step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/comm.h"
#include "train/batch.h"

namespace apus {

class ReferenceRecord {
 public:
  // logprob_T: of each label of the batch.
  void add(const Batch& batch, const at::Tensor& logprob_T);
  // f32 [T] on the batch's device; 0 where there is no label. A sequence that was never added is Fault::Bug.
  at::Tensor logprobs(const Batch& batch) const;
  // Every rank then knows what all have added.
  void share(Comm& ranks);
  int64_t size() const { return static_cast<int64_t>(known_.size()); }

 private:
  // A digest of a sequence's ids and labels -> log p of its labels, in order.
  std::unordered_map<uint64_t, std::vector<float>> known_;
};

}  // namespace apus
