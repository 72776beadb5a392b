// SPDX-License-Identifier: Apache-2.0
// What an engine is given. No tensor library; how large a cache it makes of it is in engine/cache_size.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "engine/answer/draft_spec.h"

namespace apus {

class OptionTable;

struct EngineSpec {
  int64_t block_size = 0;           // tokens; 0: what suits the device
  int64_t max_step_tokens = 2048;   // of one forward: prompts in chunks and answers together
  int64_t max_sequences = 256;      // in flight
  int64_t max_model_len = 0;        // tokens; 0: what the checkpoint was made for
  int64_t max_waiting = 0;          // requests that may wait; 0: any number
  double memory_fraction = 0.9;     // of the device's memory: weights, cache and everything else together
  int64_t cache_bytes = 0;          // above 0: the cache's size, whatever the fraction
  std::string cache_type = "auto";  // of its numbers: auto, those of the weights; int8; fp8, fp8_e4m3
  bool prefix_caching = true;
  DraftSpec draft;
  std::map<std::string, int64_t> cache_limits;  // bytes, by device ("npu:1"), where there is a limit beside the memory
  // Whether a step is asked for before the host knows the tokens of the one before it. Absent: where the device works
  // apart from the host.
  std::optional<bool> run_ahead;

  void fields(OptionTable& v);  // those that a command line sets
};

}  // namespace apus
