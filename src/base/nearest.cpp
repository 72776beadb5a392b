// SPDX-License-Identifier: Apache-2.0
#include "base/nearest.h"

#include <algorithm>

namespace apus {

namespace {
// Edit distance where a swap of neighbours counts one.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}
}  // namespace

std::vector<std::string> nearest(std::string_view wanted, const std::vector<std::string>& known, size_t count) {
  wanted = wanted.substr(0, 100);
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const auto& name : known) {
    size_t d = distance(wanted, name);
    if (name.find(wanted) != std::string::npos && wanted.size() >= 3) d = std::min<size_t>(d, 2);
    if (d <= std::max<size_t>(2, wanted.size() / 3)) ranked.emplace_back(d, name);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> best;
  for (size_t i = 0; i < ranked.size() && i < count; ++i) best.push_back(ranked[i].second);
  return best;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string all;
  for (const auto& part : parts) {
    if (!all.empty()) all += separator;
    all += part;
  }
  return all;
}

}  // namespace apus
