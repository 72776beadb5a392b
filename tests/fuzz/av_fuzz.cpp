// SPDX-License-Identifier: Apache-2.0
// Any bytes as a video or a sound, through libapus-av's two doors: frames of the announced size, samples, or a problem
// in words; nothing else. The first byte chooses a whole file in which the others overwrite some places (two bytes for
// where, one for what), or takes them as they are.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "media/av/plugin.h"

namespace {
std::string file(const char* name) {
  std::ifstream in(std::string(APUS_SOURCE_DIR "/tests/data/media/") + name, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (bytes.empty()) std::abort();
  return bytes;
}

std::string with_changes(std::string bytes, const uint8_t* data, size_t size) {
  for (size_t i = 0; i + 2 < size; i += 3) {
    const size_t place = static_cast<size_t>(data[i]) << 8 | data[i + 1];
    bytes[place % bytes.size()] = static_cast<char>(data[i + 2]);
  }
  return bytes;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::array<std::string, 2> kWhole{file("turned.mp4"), file("tone.ogg")};
  if (size < 1) return 0;
  const size_t chosen = data[0] % 3;
  const std::string bytes = chosen < kWhole.size() ? with_changes(kWhole[chosen], data + 1, size - 1)
                                                   : std::string(reinterpret_cast<const char*>(data) + 1, size - 1);
  const apus::av::Source source{static_cast<int64_t>(bytes.size()), [&](int64_t at, uint8_t* to, int64_t most) {
                                  const auto left = static_cast<int64_t>(bytes.size()) - at;
                                  const int64_t count = at < 0 || left < 0 ? 0 : std::min(left, most);
                                  if (count > 0) std::memcpy(to, bytes.data() + at, static_cast<size_t>(count));
                                  return count;
                                }};
  std::string problem;
  int64_t seen = 0, width = 0, height = 0;
  const apus::av::VideoRequest video{
      .source = source,
      .most_pixels = 1 << 16,
      .choose =
          [&](int64_t frames, double, int64_t w, int64_t h) {
            if (frames < 0 || w <= 0 || h <= 0 || w * h > 1 << 16) std::abort();
            width = w, height = h;
            return frames > 1 ? std::vector<int64_t>{0, frames - 1} : std::vector<int64_t>{0};
          },
      .take =
          [&](int64_t w, int64_t h, const uint8_t* rgb) {
            if (w * h > 1 << 16) std::abort();
            // All of it can be read.
            for (int64_t i = 0; i < 3 * w * h; ++i) seen += rgb[i];
          }};
  apus_av_video(video, problem);
  apus::av::SoundRequest sound{.source = source, .most_seconds = 60, .rate = 0, .samples = {}};
  problem.clear();
  apus_av_sound(sound, problem);
  if (problem.empty() && (sound.rate <= 0 || sound.samples.size() > static_cast<size_t>(61 * sound.rate))) std::abort();
  return 0;
}
