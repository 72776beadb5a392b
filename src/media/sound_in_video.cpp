// SPDX-License-Identifier: Apache-2.0
#include "media/sound_in_video.h"

#include <algorithm>

namespace apus {

namespace {
// Where each stretch begins, and the end of the last.
template <class Time>
std::vector<int64_t> stretches(int64_t tokens, int64_t chunk, const Time& time) {
  std::vector<int64_t> begins = {0};
  for (int64_t i = 0; i < tokens; ++i)
    if (time(i) >= static_cast<double>(std::ssize(begins) * chunk)) begins.push_back(i);
  begins.push_back(tokens);
  return begins;
}

void add(std::vector<VideoTurn>& turns, bool sound, int64_t first, int64_t count) {
  if (count == 0) return;
  if (!turns.empty() && turns.back().sound == sound)
    turns.back().count += count;
  else
    turns.push_back({sound, first, count});
}
}  // namespace

std::vector<VideoTurn> turns_of_video_and_sound(const std::vector<double>& times, int64_t sounds, int64_t chunk) {
  std::vector<VideoTurn> turns;
  const int64_t cells = std::ssize(times);
  const auto time = [&](int64_t i) { return times[static_cast<size_t>(i)]; };
  if (chunk > 0) {
    const auto video = stretches(cells, chunk, time);
    const auto sound = stretches(sounds, chunk, [](int64_t i) { return static_cast<double>(i); });
    for (size_t k = 0; k + 1 < std::max(video.size(), sound.size()); ++k) {
      if (k + 1 < video.size()) turns.push_back({false, video[k], video[k + 1] - video[k]});
      if (k + 1 < sound.size()) turns.push_back({true, sound[k], sound[k + 1] - sound[k]});
    }
    return turns;
  }
  int64_t v = 0, a = 0;
  while (v < cells && a < sounds) {
    const bool sound = time(v) > static_cast<double>(a);
    add(turns, sound, sound ? a : v, 1);
    ++(sound ? a : v);
  }
  add(turns, false, v, cells - v);
  add(turns, true, a, sounds - a);
  return turns;
}

}  // namespace apus
