// SPDX-License-Identifier: Apache-2.0
// What libapus-av.so offers: videos and compressed sounds decoded, and sounds compressed, by FFmpeg's libraries. A
// library of its own, opened when a file needs it, because they are large, and because some builds of them are under
// the GPL. It knows nothing of the rest of the program.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace apus::av {

// A file, read where it is asked for. `read`: up to `most` bytes from `at` on; 0 at its end, below 0: it failed.
struct Source {
  int64_t size = 0;
  std::function<int64_t(int64_t at, uint8_t* to, int64_t most)> read;
};

struct VideoRequest {
  Source source;
  int64_t most_pixels = 0;  // of a frame
  // Told how many frames there are (in the order in which they are shown), how many in a second (0: it does not say),
  // and their size; says which are wanted, in rising order.
  std::function<std::vector<int64_t>(int64_t frames, double rate, int64_t width, int64_t height)> choose;
  // Each of these, in their order; RGB, three bytes a pixel, turned as it is to be shown.
  std::function<void(int64_t width, int64_t height, const uint8_t* rgb)> take;
};

struct SoundRequest {
  Source source;
  double most_seconds = 0;
  int64_t rate = 0;            // of what was found
  std::vector<float> samples;  // the mean of all channels
};

// A sound of one channel that is written piece by piece. Problems are thrown as std::runtime_error.
class SoundWriter {
 public:
  virtual ~SoundWriter() = default;
  virtual std::string add(const float* samples, int64_t count) = 0;  // -> bytes of the file
  virtual std::string end() = 0;                                     // the last ones
};

}  // namespace apus::av

// `problem`: what went wrong; "": nothing did. What the request's functions throw goes through.
extern "C" void apus_av_video(const apus::av::VideoRequest& request, std::string& problem);
extern "C" void apus_av_sound(apus::av::SoundRequest& request, std::string& problem);
// `format`: mp3, opus (in Ogg), aac (ADTS), flac.
extern "C" void apus_av_write_sound(const char* format, int64_t rate, std::unique_ptr<apus::av::SoundWriter>& out,
                                    std::string& problem);
