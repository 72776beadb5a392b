// SPDX-License-Identifier: Apache-2.0
// A plain checkpoint's files written again with quantised weights, a tensor at a time, for this program and for
// transformers. No tensor library here.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "quant/wish.h"

namespace apus {

// What calibration has made of a checkpoint, in mapped files.
struct MadeWeights {
  std::map<std::string, quant::Pieces> layers;  // whose weight is quantised
  std::map<std::string, StoredTensor> changed;  // plain tensors with other numbers, f32
  Json config;                                  // the quantization_config
};

struct QuantiseSpec {
  std::filesystem::path base, output;  // the output is there
  quant::Wish wish;
  std::set<std::string> layers;       // names of those whose weight is quantised
  const MadeWeights* made = nullptr;  // in place of the wish
  int64_t max_shard = 5'000'000'000;
  std::function<void(int64_t done, int64_t of)> progress = [](int64_t, int64_t) {};
};

struct QuantiseReport {
  int64_t tensors = 0, quantised = 0, files = 0, bytes_before = 0, bytes = 0;
};

// Weights and config.json.
QuantiseReport quantise_checkpoint(const QuantiseSpec& spec);

}  // namespace apus
