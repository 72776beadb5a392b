// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/answer/draft_spec.h"

namespace apus {

std::vector<int32_t> look_up(std::span<const int32_t> tokens, const DraftSpec& spec, int64_t count) {
  const auto size = std::ssize(tokens);
  for (int64_t n = std::min(spec.longest, size - 1); n >= spec.shortest && count > 0; --n) {
    const auto last = tokens.last(static_cast<size_t>(n));
    for (int64_t at = size - n - 1; at >= 0; --at) {
      if (!std::equal(last.begin(), last.end(), tokens.begin() + at)) continue;
      std::vector<int32_t> guess;
      for (int64_t i = at + n; std::ssize(guess) < count; ++i)
        guess.push_back(i < size ? tokens[static_cast<size_t>(i)] : guess[static_cast<size_t>(i - size)]);
      return guess;
    }
  }
  return {};
}

}  // namespace apus
