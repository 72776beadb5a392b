// SPDX-License-Identifier: Apache-2.0
// A quantised checkpoint written as a plain one, a parameter at a time: memory is one parameter,
// whatever the model's size.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <functional>

namespace apus {

struct DequantiseSpec {
  std::filesystem::path base, output;  // the output is made whole or not at all
  at::ScalarType dtype = at::kBFloat16;
  int64_t max_shard = 5'000'000'000;
  std::function<void(int64_t done, int64_t of)> progress = [](int64_t, int64_t) {};
};

struct DequantiseReport {
  int64_t tensors = 0, bytes = 0;
};

bool is_quantised_checkpoint(const std::filesystem::path& dir);
// Weights, config.json without its quantization_config, and side files.
DequantiseReport dequantise_checkpoint(const DequantiseSpec& spec);

}  // namespace apus
