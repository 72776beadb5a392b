// SPDX-License-Identifier: Apache-2.0
// A video and its own sound in one stretch of tokens, as Qwen's Omni models read it: who comes after whom.
#pragma once

#include <cstdint>
#include <vector>

namespace apus {

// So many tokens of one of the two, from its `first` on.
struct VideoTurn {
  bool sound;
  int64_t first, count;
};

// `times`: the position in time of each of the video's tokens, from 0 on, never falling; those of the sound's tokens
// are 0, 1, 2, ... `chunk` > 0: both are cut into stretches of so many positions, which take turns, the video's first;
// a cut comes no earlier than one token behind the last. 0: the earlier token comes first,
// the video's where both are equal.
std::vector<VideoTurn> turns_of_video_and_sound(const std::vector<double>& times, int64_t sounds, int64_t chunk);

}  // namespace apus
