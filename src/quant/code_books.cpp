// SPDX-License-Identifier: Apache-2.0
#include "quant/code_books.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace apus::quant {

// For i = 0..6 the middles of 2^i equal parts of [0.1, 1], times 10^(i-6), with both signs; 0; 1.
CodeBook8 dynamic_map() {
  std::vector<float> all = {0.0f, 1.0f};
  for (int i = 0; i < 7; ++i) {
    const int parts = 1 << i;
    // In the order in which the original's f32 rounds: from both ends towards the middle.
    const float step = (1.0f - 0.1f) / static_cast<float>(parts);
    const auto edge = [&](int k) {
      return k < (parts + 1) / 2 ? 0.1f + step * static_cast<float>(k) : 1.0f - step * static_cast<float>(parts - k);
    };
    const auto power = static_cast<float>(std::pow(10.0, i - 6));
    for (int k = 0; k < parts; ++k) {
      const float middle = (edge(k) + edge(k + 1)) / 2.0f * power;
      all.push_back(middle), all.push_back(-middle);
    }
  }
  std::sort(all.begin(), all.end());
  CodeBook8 map;
  std::copy(all.begin(), all.end(), map.begin());
  return map;
}

}  // namespace apus::quant
