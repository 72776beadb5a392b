// SPDX-License-Identifier: Apache-2.0
// The frames of a video that a model sees: which ones, and when they were.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "media/image.h"

namespace apus {

struct VideoFrames {
  std::vector<Image> frames;  // those that were taken
  std::vector<int64_t> at;    // the number of each in the video
  double rate = 0;            // frames of the video in a second; 0: not known
  double taken_rate = 0;      // frames taken in a second
};

struct FrameRules {
  double rate = 2;  // frames in a second that are wanted
  int64_t least = 4, most = 768;
  int64_t count = 0;  // above 0: so many, whatever the rest says
};

// As qwen-vl-utils takes them: an even number, evenly spread from the first frame to the last.
std::vector<int64_t> even_frames(int64_t total, double rate, const FrameRules& rules);
// As the video processor of Qwen3-VL takes them.
std::vector<int64_t> qwen3_frames(int64_t total, double rate, const FrameRules& rules);
// As that of GLM-4.1V does: `wanted` in a second from the first one on, an even number; of a longer video `most`,
// spread over all of it.
std::vector<int64_t> glm_frames(int64_t total, double rate, double wanted, int64_t most);
// `count` of them from the first to the last, each cut to a whole number.
std::vector<int64_t> spread_frames(int64_t total, int64_t count);
// InternVL: the middle of so many stretches of one length.
std::vector<int64_t> middle_frames(int64_t total, int64_t count);

// Seconds into the video of each group of `together` frames: the middle between its first and its last one.
std::vector<double> group_seconds(std::vector<int64_t> at, double rate, int64_t together);

}  // namespace apus
