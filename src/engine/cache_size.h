// SPDX-License-Identifier: Apache-2.0
// How large a cache an engine makes of what it is given.
#pragma once

#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <limits>

#include "engine/answer/engine_spec.h"
#include "models/model.h"

namespace apus {

// How many cache blocks a device has memory for, and how long a text may be then. Pure.
struct CacheSize {
  int64_t blocks = 0, max_model_len = 0;
  // Of a model with states: of so many sequences at a time.
  int64_t seats = 0;
  // Of a model with layers that read pictures: what these make of so many is kept beside the cache.
  int64_t pictures = 0;
};
CacheSize cache_size(const EngineSpec& spec, int64_t model_positions, int64_t bytes_per_block, int64_t total,
                     int64_t free, bool host, int64_t limit = std::numeric_limits<int64_t>::max());

// The same for a model, on the device of `options` or on those it lies on: there the one with the least room for the
// caches of its layers decides. Fault::Device when there is none. `block_size` must be known.
// `beside`: bytes that each block takes besides on the device of `options`, for somebody who guesses.
CacheSize cache_size_of(const Model& model, const at::TensorOptions& options, const EngineSpec& spec,
                        int64_t beside = 0);
// The longest prompt, up to `longest`, whose keys would be the same in a longer prompt: rotary tables may follow the
// length beyond some context (dynamic, longrope), and then prompts of different lengths share no blocks.
int64_t alike_up_to(const Model& model, at::Device device, int64_t longest);
// What a cache of that size holds: of the keys and values those whose heads this rank has.
KvCache::Spec held_cache(const Model& model, const EngineSpec& spec, const CacheSize& size);
EngineSpec with_block_size(EngineSpec spec, const Model& model, at::Device only);  // what suits the devices, if it is 0

}  // namespace apus
