// SPDX-License-Identifier: Apache-2.0
#include "media/frames.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace apus {

namespace {

constexpr double kUsualRate = 24;  // of a video that does not say its own

void check_video(int64_t total) { require(total > 0, Fault::Data, "a video without frames"); }

// numpy's linspace(0, total - 1, count), rounded to even.
std::vector<int64_t> spread_evenly(int64_t total, int64_t count) {
  std::vector<int64_t> at;
  const double step = count > 1 ? static_cast<double>(total - 1) / static_cast<double>(count - 1) : 0;
  for (int64_t i = 0; i < count; ++i)
    at.push_back(i > 0 && i == count - 1 ? total - 1
                                         : static_cast<int64_t>(std::nearbyint(static_cast<double>(i) * step)));
  return at;
}

}  // namespace

std::vector<int64_t> even_frames(int64_t total, double rate, const FrameRules& rules) {
  check_video(total);
  require(total >= 2, Fault::Data, "a video of one frame; give it as an image");
  const double own = rate > 0 ? rate : kUsualRate;
  const auto least = static_cast<double>((rules.least + 1) / 2 * 2);
  const auto most = static_cast<double>(std::min(rules.most, total) / 2 * 2);
  double wanted = static_cast<double>(total) / own * rules.rate;
  wanted = std::min(std::min(std::max(wanted, least), most), static_cast<double>(total));
  const int64_t count = rules.count > 0 ? static_cast<int64_t>(std::nearbyint(static_cast<double>(rules.count) / 2)) * 2
                                        : static_cast<int64_t>(wanted / 2) * 2;
  require(count >= 2 && count <= total, Fault::Data, count, " frames of a video of ", total,
          "; there must be 2 at least, and as many in the video");
  // torch.linspace(0, total - 1, count).round(): in single precision, the second half counted from the end.
  const auto last = static_cast<float>(total - 1);
  const float step = last / static_cast<float>(count - 1);
  std::vector<int64_t> at;
  for (int64_t i = 0; i < count; ++i)
    at.push_back(static_cast<int64_t>(std::nearbyint(i < count / 2 ? step * static_cast<float>(i)
                                                                   : last - step * static_cast<float>(count - 1 - i))));
  return at;
}

std::vector<int64_t> qwen3_frames(int64_t total, double rate, const FrameRules& rules) {
  check_video(total);
  const double own = rate > 0 ? rate : kUsualRate;
  const auto wanted = static_cast<int64_t>(static_cast<double>(total) / own * rules.rate);
  return spread_evenly(total, std::min(std::min(std::max(wanted, rules.least), rules.most), total));
}

std::vector<int64_t> glm_frames(int64_t total, double rate, double wanted, int64_t most) {
  check_video(total);
  const double own = rate > 0 ? rate : kUsualRate, seconds = static_cast<double>(total) / own;
  const auto by_rate = std::max<int64_t>(static_cast<int64_t>(std::floor(seconds * wanted)), 1);
  const int64_t count = std::min(by_rate, most);
  const double step = seconds / static_cast<double>(most - 1);
  std::vector<int64_t> at;
  for (int64_t i = 0; i < count; ++i) {
    const auto n = static_cast<double>(i);
    const double place = by_rate <= most ? n * own / wanted : n * step * own;
    const int64_t number = std::min(total - 1, static_cast<int64_t>(std::ceil(place)));
    if (at.empty() || number != at.back()) at.push_back(number);
  }
  if (at.size() % 2 == 1) at.push_back(at.back());
  return at;
}

std::vector<int64_t> middle_frames(int64_t total, int64_t count) {
  check_video(total);
  const double stretch = static_cast<double>(total - 1) / static_cast<double>(count);
  std::vector<int64_t> at;
  for (int64_t k = 0; k < count; ++k)
    at.push_back(static_cast<int64_t>(stretch / 2 + std::nearbyint(stretch * static_cast<double>(k))));
  return at;
}

std::vector<int64_t> spread_frames(int64_t total, int64_t count) {
  check_video(total);
  std::vector<int64_t> at;
  const double step = count > 1 ? static_cast<double>(total - 1) / static_cast<double>(count - 1) : 0;
  for (int64_t k = 0; k < count; ++k) at.push_back(static_cast<int64_t>(step * static_cast<double>(k)));
  if (count > 1) at.back() = total - 1;
  return at;
}

std::vector<double> group_seconds(std::vector<int64_t> at, double rate, int64_t together) {
  require(!at.empty(), Fault::Data, "a video without frames");
  while (static_cast<int64_t>(at.size()) % together != 0) at.push_back(at.back());
  const double own = rate > 0 ? rate : kUsualRate;
  std::vector<double> seconds;
  for (size_t i = 0; i < at.size(); i += static_cast<size_t>(together)) {
    const double first = static_cast<double>(at[i]) / own;
    const double last = static_cast<double>(at[i + static_cast<size_t>(together) - 1]) / own;
    seconds.push_back((first + last) / 2);
  }
  return seconds;
}

}  // namespace apus
