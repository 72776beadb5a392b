// SPDX-License-Identifier: Apache-2.0
// --device_map and --max_memory of any content (a line each), and the placement they lead to: everything lies somewhere
// and within its room, or an error says why not.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "parallel/placement/placement.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t line = text.find('\n');
  apus::PlacementRequest ask;
  ask.kind = "npu", ask.share = 1, ask.tokens = 100, ask.least_tokens = 1;
  ask.parts = {{.name = "model.embed_tokens", .weights = 50}, {.name = "visual", .weights = 20, .follows = 0}};
  for (int i = 0; i < 6; ++i)
    ask.parts.push_back({.name = "model.layers." + std::to_string(i), .weights = 30, .cache = 1});
  ask.parts.push_back({.name = "lm_head", .weights = 50, .follows = 0, .may_leave = true});
  try {
    ask.map = apus::parse_device_map(text.substr(0, line));
    const auto limits = apus::parse_max_memory(line == std::string::npos ? "" : text.substr(line + 1));
    for (int i = 0; i < 3; ++i) {
      apus::Room room{.device = "npu:" + std::to_string(i), .total = 200, .free = 150 + i};
      if (const auto limit = limits.find(std::to_string(i)); limit != limits.end()) room.limit = limit->second;
      ask.rooms.push_back(room);
    }
    const apus::Placement p = apus::place(ask);
    if (p.room.size() != ask.parts.size()) std::abort();
    for (size_t r = 0; r < ask.rooms.size(); ++r)
      if (p.weights[r] + p.cache[r] * p.tokens > ask.room(r)) std::abort();
    for (const int r : p.room)
      if (r < 0 || r > 2) std::abort();
  } catch (const apus::Error& error) {
    if (error.at.fault == apus::Fault::Bug) std::abort();
  }
  return 0;
}
