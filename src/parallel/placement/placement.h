// SPDX-License-Identifier: Apache-2.0
// Which part of a model goes on which device. Pure: sizes and free memory in, places out. No tensor library, no device.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "parallel/placement/device_map.h"

namespace apus {

// What is placed as a whole, because one call of the model runs it.
struct Part {
  std::string name;     // of its module: "model.layers.3"
  int64_t weights = 0;  // bytes
  int64_t cache = 0;    // bytes for a token of context
  // Lies where that part does: a tower beside the embedding it feeds, a tied head where its weight is.
  int follows = -1;
  // But a map may place it elsewhere: a tied head becomes a copy of `weights` bytes.
  bool may_leave = false;
};

struct Room {
  std::string device;                                   // "npu:1"
  int64_t total = 0, free = 0;                          // bytes
  int64_t limit = std::numeric_limits<int64_t>::max();  // --max_memory
  bool host = false;                                    // the processor: used when nothing else has room
};

struct PlacementRequest {
  std::vector<Part> parts;  // in the order in which the forward comes to them
  std::vector<Room> rooms;  // the devices that may be used, in order; the processor last
  DeviceMap map;
  std::string kind;    // what a bare number in the map means: "npu"
  double share = 0.9;  // of each device's memory, for weights and cache
  // The cache has room for `tokens` if that is possible, else for fewer, but never for fewer than `least_tokens`.
  int64_t tokens = 0, least_tokens = 0;
  // What a remedy may say, beside all above.
  bool float32 = false;                // the weights' format
  std::string share_flag, cache_flag;  // which flags made `share` and `least_tokens`; empty: none
  std::optional<Room> spare_host;      // the processor, when it is not among the rooms

  int64_t room(size_t i) const;  // bytes that may be filled on rooms[i]
};

struct Placement {
  std::vector<int> room;                // of each part
  std::vector<int64_t> weights, cache;  // bytes on each room; the cache's for a token
  int64_t tokens = 0;                   // that the cache was given room for
  std::vector<int> used() const;        // the rooms that hold something
};

// Fault::Device when it does not fit, saying what does not fit where and the cheapest way out; Fault::Usage for a map
// that does not belong to the model or to the devices.
Placement place(const PlacementRequest& ask);

// "model.embed_tokens, model.layers.0-13"
std::string name_ranges(const std::vector<std::string>& names);
std::string names_on(const PlacementRequest& ask, const Placement& placement, int room);

}  // namespace apus
