// SPDX-License-Identifier: Apache-2.0
// What SmolVLM 2 is told of a video: which frames, and when they were.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "media/frames.h"

namespace apus {

// `wanted` in a second, at most `most`, from the first frame to the last; of a video that is longer than those, without
// its first and its last second. `rate` 0: it is not known.
std::vector<int64_t> smol_frames(int64_t total, double rate, double wanted, int64_t most);
// How many frames of how long a video follow.
std::string smol_intro(const VideoFrames& video);
// Of the number-th frame that was taken, as MM:SS.
std::string smol_time(const VideoFrames& video, size_t number);

}  // namespace apus
