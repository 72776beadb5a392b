// SPDX-License-Identifier: Apache-2.0
// Videos from files, and sounds of other kinds than WAV: decoded by libapus-av.so (media/av), which is there where the
// build found FFmpeg's libraries.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "media/frames.h"
#include "media/source.h"

namespace apus {

struct VideoWishes {
  // Of so many frames, of which so many come in a second (0: not known), those that are wanted.
  std::function<std::vector<int64_t>(int64_t frames, double rate)> choose;
  // What is kept of a frame, of `count` that are taken.
  std::function<Image(Image frame, int64_t count)> shrink;
};

// `entry`: a path, URL, data URI or base64, as media_bytes takes it; a file may be larger, and is not held in memory.
// Fault::Data for what is no video, and where libapus-av.so is missing.
VideoFrames read_video(const std::string& entry, const SourceLimits& limits, const VideoWishes& wishes);

// The sound of a file of any kind, a video's too: one channel at 16 kHz.
std::vector<float> read_sound(const std::string& entry, const SourceLimits& limits);

}  // namespace apus
