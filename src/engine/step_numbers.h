// SPDX-License-Identifier: Apache-2.0
// A forward pass as plain numbers: what the scheduler's plan comes to, and what other ranks are told of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace apus {

// Which rows of something go through which adapter.
using AdapterRoutes = std::map<std::string, std::vector<int64_t>>;

// T tokens of S sequences.
struct StepNumbers {
  std::vector<int64_t> id, slot;       // [T]
  std::vector<int64_t> seat;           // [S], of a model with states
  std::vector<int64_t> begin, length;  // [S]: of its tokens, in the sequence
  std::vector<int64_t> prompt;         // [S]: Sequence::read_as
  std::vector<int32_t> blocks;         // [S, widest]
  bool routed = false;                 // adapters are loaded
  AdapterRoutes routes;                // tokens
};

}  // namespace apus
