// SPDX-License-Identifier: Apache-2.0
// What a constraint lets through, as a list; for tests and fuzz targets.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/answer/text_engine.h"

namespace apus::test {

inline std::vector<int32_t> allowed(Constraint& c) {
  std::vector<uint64_t> mask;
  c.allowed(mask);
  std::vector<int32_t> out;
  for (size_t t = 0; t < mask.size() * 64; ++t)
    if (mask[t / 64] >> (t % 64) & 1) out.push_back(static_cast<int32_t>(t));
  return out;
}

}  // namespace apus::test
