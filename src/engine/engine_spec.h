// SPDX-License-Identifier: Apache-2.0
// What an engine is given, and how large a cache it makes of it.
#pragma once

#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "models/model.h"

namespace apus {

struct EngineSpec {
  int64_t block_size = 0;  // 0: what suits the device
  int64_t max_step_tokens = 2048, max_sequences = 256;
  int64_t max_model_len = 0;  // 0: what the checkpoint was made for
  int64_t max_waiting = 0;    // requests that may wait; 0: any number
  // Of the device's memory, weights and cache and everything else together.
  double memory_fraction = 0.9;
  int64_t cache_bytes = 0;  // above 0: the cache's size, whatever the fraction
  bool prefix_caching = true;
  // Bytes, by device ("npu:1"), where there is a limit beside the memory.
  std::map<std::string, int64_t> cache_limits;
};

// How many cache blocks a device has memory for, and how long a text may be then. Pure.
struct CacheSize {
  int64_t blocks = 0, max_model_len = 0;
};
CacheSize cache_size(const EngineSpec& spec, int64_t model_positions, int64_t bytes_per_block, int64_t total,
                     int64_t free, bool host, int64_t limit = std::numeric_limits<int64_t>::max());

// The same for a model, on the device of `options` or on those it lies on: there the one with the least room for the
// caches of its layers decides. Fault::Device when there is none. `block_size` must be known.
CacheSize cache_size_of(const Model& model, const at::TensorOptions& options, const EngineSpec& spec);
// The longest prompt, up to `longest`, whose keys would be the same in a longer prompt: rotary tables may follow the
// length beyond some context (dynamic, longrope), and then prompts of different lengths share no blocks.
int64_t alike_up_to(const Model& model, at::Device device, int64_t longest);
EngineSpec with_block_size(EngineSpec spec, const Model& model, at::Device only);  // what suits the devices, if it is 0

}  // namespace apus
