// SPDX-License-Identifier: Apache-2.0
// A model with a head of one score on a golden checkpoint's trunk.
#pragma once

#include "checkpoint/weights.h"
#include "tensor/noise.h"
#include "tests/train/training.h"

namespace apus::test {

inline std::unique_ptr<Model> scalar_model(const std::filesystem::path& dir, uint64_t seed = 3) {
  auto model = make_model(read_model_config(dir), Head::Scalar);
  load_weights(*model, TensorFolder(dir),
               {.dtype = at::kFloat,
                .device = golden::device(),
                .own = [](const std::string&) { return true; },
                .fresh =
                    [&](const std::string& name, const std::vector<int64_t>& shape) {
                      return name == model->head_name() + ".weight" ? normal_noise(shape, 0, 0.05, seed) : at::Tensor();
                    }});
  return model;
}

}  // namespace apus::test
