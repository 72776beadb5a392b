// SPDX-License-Identifier: Apache-2.0
// Tensors as HuggingFace writes them: model.safetensors, or numbered shards and their index.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "base/json.h"
#include "tensor/safetensors.h"

namespace apus {

// Shards of at most `max_shard` bytes, with an index when there are several. The tensors come one at a time in the
// order in which they were announced, so memory holds one tensor. They are written as the announced type.
class ShardsWriter {
 public:
  ShardsWriter(const std::filesystem::path& dir, const std::vector<SafetensorsWriter::Spec>& tensors,
               int64_t max_shard);
  void add(const std::string& name, const at::Tensor& tensor);
  void commit();  // and removes what an earlier save into the same folder would be taken for
  int64_t shards() const { return static_cast<int64_t>(shards_.size()); }
  int64_t bytes() const { return bytes_; }

 private:
  std::string name_of(size_t shard) const;
  std::filesystem::path dir_;
  std::vector<std::vector<SafetensorsWriter::Spec>> shards_{1};
  int64_t bytes_ = 0;
  Json index_;
  size_t shard_ = 0, next_ = 0;  // the tensor that comes next
  std::unique_ptr<SafetensorsWriter> writer_;
};

}  // namespace apus
