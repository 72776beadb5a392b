// SPDX-License-Identifier: Apache-2.0
// Which of several ranks the others wait for.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

namespace apus {

struct Straggler {
  size_t rank = 0;
  double times = 1;  // as long as the rank in the middle takes
};

// `seconds`: of work of each rank's own since the last time. Nothing where nobody takes a quarter longer than the one
// in the middle, or where all of it is too short to tell.
inline std::optional<Straggler> straggler_of(const std::vector<double>& seconds) {
  constexpr double kTold = 1.25, kShortest = 0.1;
  if (seconds.size() < 2) return std::nullopt;
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  const double middle = sorted[(sorted.size() - 1) / 2];
  const auto slowest = std::max_element(seconds.begin(), seconds.end());
  if (*slowest < kShortest || *slowest < kTold * middle) return std::nullopt;
  return Straggler{static_cast<size_t>(slowest - seconds.begin()), *slowest / std::max(middle, 1e-9)};
}

}  // namespace apus
