// SPDX-License-Identifier: Apache-2.0
// Importance matrices, as llama-imatrix writes them: of each number that a matrix multiplies, the mean of its squares
// in some texts. No tensor library.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace apus {

class ImportanceMatrix {
 public:
  // A .dat of older versions, or a .gguf. Fault::Model for what is neither, or is cut short.
  static ImportanceMatrix read(const std::filesystem::path& path);
  // Of a tensor of the file that is written: for each number of its `width`, of each of its `stack` matrices one after
  // another; null: nothing is known. Fault::Model where it has another size.
  const float* find(const std::string& tensor, int64_t width, int64_t stack) const;
  size_t size() const { return values_.size(); }

 private:
  std::string where_;
  std::map<std::string, std::vector<float>> values_;
};

}  // namespace apus
