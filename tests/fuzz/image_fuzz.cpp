// SPDX-License-Identifier: Apache-2.0
// Any bytes as a picture or a sound: pixels of the announced number, samples, or Fault::Data; nothing else. The first
// byte puts the beginning of a format in front, which random bytes hardly ever hit.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "media/image.h"
#include "media/sound.h"

namespace {
using namespace std::string_view_literals;
constexpr std::array<std::string_view, 10> kBeginnings{""sv,
                                                       "\xff\xd8\xff"sv,
                                                       "\x89PNG\r\n\x1a\n"sv,
                                                       "GIF89a"sv,
                                                       "BM"sv,
                                                       "RIFF\0\1\0\0WEBPVP8L"sv,
                                                       "RIFF\0\1\0\0WEBPVP8X"sv,
                                                       "RIFF\0\1\0\0WAVEfmt "sv,
                                                       "II*\0\x8\0\0\0"sv,
                                                       "MM\0*\0\0\0\x8"sv};

template <class F>
void only_data_faults(const F& run) {
  try {
    run();
  } catch (const apus::Error& error) {
    if (error.at.fault != apus::Fault::Data) std::abort();
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string bytes = std::string(kBeginnings[data[0] % kBeginnings.size()]) +
                            std::string(reinterpret_cast<const char*>(data) + 1, size - 1);
  const apus::ImageLimits limits{.pixels = 1 << 20, .side = 4096};
  only_data_faults([&] {
    const apus::Image image = apus::decode_image(bytes, limits);
    if (image.rgb.size() != static_cast<size_t>(image.width * image.height * 3)) std::abort();
  });
  only_data_faults([&] { apus::decode_sound(bytes); });
  return 0;
}
