// SPDX-License-Identifier: Apache-2.0
// What a reference says of every sequence, asked once before a run instead of in each step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
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
  // In a file, for later runs. `of` tells what was asked, and in what way: a record of anything else is not read.
  void save(const std::filesystem::path& file, const std::string& of) const;
  bool load(const std::filesystem::path& file, const std::string& of);  // false: there is none of it
  bool knows(const Batch& batch) const;
  int64_t size() const { return static_cast<int64_t>(known_.size()); }

 private:
  std::string packed() const;
  bool unpack(const std::string& text, size_t at);
  // A digest of a sequence's ids and labels -> log p of its labels, in order.
  std::unordered_map<uint64_t, std::vector<float>> known_;
};

}  // namespace apus
