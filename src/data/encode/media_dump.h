// SPDX-License-Identifier: Apache-2.0
// What a processor makes of rows' media as a safetensors file, to be held against another implementation.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "data/encode/row_media.h"
#include "data/rows/row_store.h"

namespace apus {

// Tensors under transformers' names with the row's number behind: pixel_values.0, image_grid_thw.0; a row's media of
// one kind one behind the other, sounds padded with zeros to the longest.
class MediaDump {
 public:
  explicit MediaDump(std::filesystem::path file) : file_(std::move(file)) {}
  void add(int64_t row, const RowMedia& media, const MediaProcessor& processor);
  void write() const;

 private:
  struct Tensor {
    std::string name, type;
    std::vector<int64_t> shape;
    int64_t begin = 0, bytes = 0;  // in the scratch file
  };
  void put(const std::string& name, const char* type, std::vector<int64_t> shape, std::string_view data);
  std::filesystem::path file_;
  std::vector<Tensor> tensors_;
  ScratchFile data_;
};

}  // namespace apus
