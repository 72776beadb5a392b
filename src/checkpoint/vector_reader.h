// SPDX-License-Identifier: Apache-2.0
// The vectors of texts from the states of their tokens: pooled, through further layers, at length one.
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/vector_files.h"
#include "models/model.h"

namespace apus {

class VectorReader {
 public:
  VectorReader() = default;
  // Reads the layers' weights, as f32. Fault::Model where a file is missing or does not fit.
  VectorReader(const std::filesystem::path& dir, VectorForm form, at::Device device);
  at::Tensor operator()(const at::Tensor& normed_TD, const Step& s) const;  // f32 [S, D]
  const VectorForm& form() const { return form_; }

 private:
  VectorForm form_;
  std::vector<std::pair<at::Tensor, at::Tensor>> layers_;  // weight [out, in], and bias or nothing
};

}  // namespace apus
