// SPDX-License-Identifier: Apache-2.0
#include "media/video.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/descriptor.h"
#include "base/error.h"
#include "media/av_plugin.h"
#include "media/sound.h"

namespace apus {

namespace {

constexpr int64_t kLargestVideo = int64_t{2} << 30;
constexpr int64_t kFramePixels = 8192 * 8192;
constexpr int64_t kMostTaken = 768;

av::Source source_of(const std::string& entry, const SourceLimits& limits) {
  if (!is_local_file(entry)) {
    const auto bytes = std::make_shared<const std::string>(media_bytes(entry, limits));
    return {std::ssize(*bytes), [bytes](int64_t at, uint8_t* to, int64_t most) {
              const int64_t count = std::clamp<int64_t>(std::ssize(*bytes) - at, 0, most);
              if (count > 0) std::memcpy(to, bytes->data() + at, static_cast<size_t>(count));
              return count;
            }};
  }
  const auto file = std::make_shared<const Descriptor>(::open(entry.c_str(), O_RDONLY | O_CLOEXEC));
  require(file->is_open(), Fault::Data, "cannot read it: ", std::strerror(errno));
  struct stat info {};
  require(::fstat(file->number(), &info) == 0 && S_ISREG(info.st_mode), Fault::Data, "it is no file");
  require(info.st_size <= kLargestVideo, Fault::Data, "a file of ", info.st_size, " bytes; at most ", kLargestVideo,
          " are read");
  return {info.st_size, [file](int64_t at, uint8_t* to, int64_t most) -> int64_t {
            for (;;) {
              const ssize_t got = ::pread(file->number(), to, static_cast<size_t>(most), at);
              if (got >= 0 || errno != EINTR) return got;
            }
          }};
}

// Errors name the entry, once.
template <class F>
auto named(const std::string& entry, const F& f) {
  try {
    return f();
  } catch (const Error& error) {
    const std::string what = error.what(), name = entry_name(entry);
    fail(Fault::Data, what.find(name) == std::string::npos ? name + ": " + what : what);
  }
}

VideoFrames decoded_video(const std::string& entry, const SourceLimits& limits, const VideoWishes& wishes) {
  require(av_plugin().video, Fault::Data, "video files cannot be read: ", av_plugin().problem,
          "; or give the video as a list of its frames");
  VideoFrames out;
  av::VideoRequest request{.source = source_of(entry, limits), .most_pixels = kFramePixels, .choose = {}, .take = {}};
  request.choose = [&](int64_t frames, double rate, int64_t, int64_t) {
    out.rate = rate;
    out.at = wishes.choose(frames, rate);
    require(std::ssize(out.at) <= kMostTaken, Fault::Data, out.at.size(), " frames of a video; at most ", kMostTaken,
            " are taken");
    out.taken_rate = rate > 0 ? static_cast<double>(out.at.size()) / static_cast<double>(frames) * rate : 0;
    return out.at;
  };
  request.take = [&](int64_t width, int64_t height, const uint8_t* rgb) {
    Image frame{width, height, std::vector<uint8_t>(rgb, rgb + 3 * width * height)};
    out.frames.push_back(wishes.shrink(std::move(frame), std::ssize(out.at)));
  };
  std::string problem;
  av_plugin().video(request, problem);
  require(problem.empty(), Fault::Data, problem);
  return out;
}

std::vector<float> decoded_sound(const std::string& entry, const SourceLimits& limits) {
  const av::Source source = source_of(entry, limits);
  char head[12] = "";
  const int64_t got = source.read(0, reinterpret_cast<uint8_t*>(head), sizeof head);
  if (got == sizeof head && std::memcmp(head, "RIFF", 4) == 0 && std::memcmp(head + 8, "WAVE", 4) == 0)
    return decode_sound(media_bytes(entry, limits));
  require(av_plugin().sound, Fault::Data, "only WAV files can be heard: ", av_plugin().problem,
          "; `ffmpeg -i in.mp3 -ar 16000 -ac 1 out.wav` makes one");
  av::SoundRequest request{.source = source, .most_seconds = kLongestSound, .rate = 0, .samples = {}};
  std::string problem;
  av_plugin().sound(request, problem);
  require(problem.empty(), Fault::Data, problem);
  return resampled(request.samples, request.rate, kSoundRate);
}

}  // namespace

VideoFrames read_video(const std::string& entry, const SourceLimits& limits, const VideoWishes& wishes) {
  return named(entry, [&] { return decoded_video(entry, limits, wishes); });
}

std::vector<float> read_sound(const std::string& entry, const SourceLimits& limits) {
  return named(entry, [&] { return decoded_sound(entry, limits); });
}

}  // namespace apus
