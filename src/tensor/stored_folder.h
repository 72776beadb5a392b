// SPDX-License-Identifier: Apache-2.0
// The tensors of a model folder as bytes, by name: model.safetensors or its shards. No tensor library here.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tensor/stored_tensor.h"

namespace apus {

class StoredFolder {
 public:
  explicit StoredFolder(const std::filesystem::path& dir, const std::string& stem = "model");
  const StoredTensor* find(const std::string& name) const;                // mapped for as long as a copy of it lives
  std::vector<std::string> names_below(const std::string& prefix) const;  // that begin so
  const std::map<std::string, StoredTensor>& all() const { return tensors_; }

 private:
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace apus
