// SPDX-License-Identifier: Apache-2.0
// Which files of a folder hold its weights: model.safetensors; or the shards that model.safetensors.index.json names.
// Of both, the single file. Of a model without these, pytorch_model.bin and the shards of pytorch_model.bin.index.json.
// No tensor library.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tensor/safetensors_header.h"

namespace apus {

// `stem`: "model", "adapter_model"
std::string single_file(const std::string& stem);
std::string index_file(const std::string& stem);
std::string shard_file(const std::string& stem, size_t index, size_t count);  // of one: the single file

struct WeightFile {
  std::filesystem::path path;
  std::vector<std::string> promised;  // tensors that the index says are in it; a single file promises none
};
// Fault::Model where they are missing, incomplete or of a format that is not read, with what to do about it.
std::vector<WeightFile> weight_files(const std::filesystem::path& dir, const std::string& stem);

// Of a file of either kind.
SafetensorsHeader parse_weights_header(const std::byte* data, int64_t size, const std::string& where);

}  // namespace apus
