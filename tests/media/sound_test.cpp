// SPDX-License-Identifier: Apache-2.0
#include "media/sound.h"

#include <gtest/gtest.h>

#include "tests/media/golden_numbers.h"
#include "tests/refusal.h"

namespace apus {
namespace {

std::string wav(int kind, int channels, int rate, int bits, const std::string& data) {
  std::string out = "RIFF";
  const auto put = [&](size_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 255));
  };
  put(36 + data.size(), 4);
  out += "WAVEfmt ";
  put(16, 4), put(static_cast<size_t>(kind), 2), put(static_cast<size_t>(channels), 2);
  put(static_cast<size_t>(rate), 4), put(static_cast<size_t>(rate * channels * bits / 8), 4);
  put(static_cast<size_t>(channels * bits / 8), 2), put(static_cast<size_t>(bits), 2);
  out += "data";
  put(data.size(), 4);
  return out + data;
}

TEST(Sound, MelIsWhispers) {
  const test::ProcessorNumbers golden;
  const auto first = golden.values<float>("audio/wave0"), second = golden.values<float>("audio/wave1");
  const auto longest = static_cast<int64_t>(std::max(first.size(), second.size()));
  for (const int64_t mels : {int64_t{80}, int64_t{128}}) {
    const std::string name = "mel" + std::to_string(mels) + "/input_features";
    if (!golden.has(name)) continue;
    const auto wanted = golden.values<float>(name);
    const int64_t width = golden.shape(name)[2];
    for (size_t clip = 0; clip < 2; ++clip) {
      int64_t frames = 0;
      const auto got = log_mel(clip == 0 ? first : second, mels, longest, frames);
      ASSERT_LE(frames, width);
      double worst = 0;
      for (int64_t m = 0; m < mels; ++m)
        for (int64_t f = 0; f < frames; ++f)
          worst = std::max(
              worst,
              std::abs(
                  static_cast<double>(got[static_cast<size_t>(m * frames + f)]) -
                  static_cast<double>(
                      wanted[(clip * static_cast<size_t>(mels) + static_cast<size_t>(m)) * static_cast<size_t>(width) +
                             static_cast<size_t>(f)])));
      EXPECT_LE(worst, 5e-4) << name << " clip " << clip;
      // Which of its frames count.
      const auto mask = golden.values<int64_t>("mel128/attention_mask");
      int64_t valid = 0;
      for (int64_t f = 0; f < width; ++f) valid += mask[clip * static_cast<size_t>(width) + static_cast<size_t>(f)];
      EXPECT_EQ(frames, valid);
    }
  }
}

TEST(Sound, WavOfEveryKind) {
  const std::string whole{"\x00\x40\x00\xc0", 4};  // 0.5, -0.5
  EXPECT_EQ(decode_sound(wav(1, 1, 16000, 16, whole)), (std::vector<float>{0.5f, -0.5f}));
  EXPECT_EQ(decode_sound(wav(1, 2, 16000, 16, whole)), (std::vector<float>{0.f}));
  EXPECT_EQ(decode_sound(wav(1, 1, 16000, 8, std::string("\xc0\x40", 2))), (std::vector<float>{0.5f, -0.5f}));
  EXPECT_EQ(decode_sound(wav(1, 1, 16000, 24, std::string("\0\0\x40\0\0\xc0", 6))), (std::vector<float>{0.5f, -0.5f}));
  EXPECT_EQ(decode_sound(wav(3, 1, 16000, 32, std::string("\0\0\0\x3f", 4))), (std::vector<float>{0.5f}));
}

TEST(Sound, BadWavIsNamed) {
  test::expect_says(test::refusal(Fault::Data, [] { decode_sound("ID3abcdefghijkl"); }), "no WAV file");
  std::string cut = wav(1, 1, 16000, 16, std::string(100, 'a'));
  test::expect_says(test::refusal(Fault::Data, [&] { decode_sound(cut.substr(0, 80)); }), "truncated");
  test::expect_says(test::refusal(Fault::Data, [] { decode_sound(wav(2, 1, 16000, 4, "abcd")); }), "of kind 2");
  test::expect_says(test::refusal(Fault::Data, [] { decode_sound(wav(1, 1, 16000, 16, "")); }), "without samples");
}

TEST(Sound, ResamplingKeepsATone) {
  std::vector<float> tone(44100);
  for (size_t i = 0; i < tone.size(); ++i)
    tone[i] = static_cast<float>(std::sin(2 * M_PI * 1000 * static_cast<double>(i) / 44100));
  const auto out = resampled(tone, 44100, 16000);
  ASSERT_EQ(out.size(), 16000u);
  for (size_t i = 200; i < 15800; ++i)
    ASSERT_NEAR(out[i], std::sin(2 * M_PI * 1000 * static_cast<double>(i) / 16000), 2e-3) << i;
  // What the lower rate cannot carry is gone.
  for (size_t i = 0; i < tone.size(); ++i)
    tone[i] = static_cast<float>(std::sin(2 * M_PI * 12000 * static_cast<double>(i) / 44100));
  const auto none = resampled(tone, 44100, 16000);
  for (size_t i = 200; i < 15800; ++i) ASSERT_NEAR(none[i], 0, 2e-3) << i;
}

}  // namespace
}  // namespace apus
