// SPDX-License-Identifier: Apache-2.0
// One encoded row: what a model reads and which of it is learnt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace apus {

struct Sample {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;  // per token: 1 where it is a label. The first is never one.
  std::vector<float> weights;    // per token: the factor on its loss; empty: all 1
  std::string channel;
  // JSON text of the row's other columns that a loss or a media tower needs; may be empty.
  std::string extra;
  int64_t length() const { return static_cast<int64_t>(ids.size()); }
  int64_t trained_tokens() const {
    int64_t count = 0;
    for (const uint8_t t : trained) count += t;
    return count;
  }
};

}  // namespace apus
