// SPDX-License-Identifier: Apache-2.0
// Videos and compressed sounds, through FFmpeg's libraries where the build has them. turned.mp4: 40 frames of 64 x 48
// in four seconds (MPEG-4 with B frames), frame i of brightness 20 + 5 i with a white upper left quarter, to be shown
// turned to the right by a quarter. tone.ogg: four seconds of 440 Hz, of which the second channel is half as loud.
#include "media/video.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "media/sound_in_video.h"
#include "media/sound_out.h"
#include "tests/folder.h"
#include "tests/paths.h"
#include "tests/refusal.h"

namespace apus {
namespace {

std::string file(const char* name) { return (test::source_dir() / "tests/data/media" / name).string(); }

bool can_decode() { return std::filesystem::exists(test::binary_dir() / "libapus-av.so"); }

VideoFrames taken(const std::string& entry, std::vector<int64_t> wanted) {
  return read_video(
      entry, {},
      {.choose = [&](int64_t, double) { return wanted; }, .shrink = [](Image frame, int64_t) { return frame; }});
}

TEST(Videos, FramesAreThoseThatWereAskedFor) {
  if (!can_decode()) GTEST_SKIP() << "this build has no FFmpeg";
  const VideoFrames video = taken(file("turned.mp4"), {0, 1, 13, 25, 39});
  EXPECT_NEAR(video.rate, 10, 1e-6);
  EXPECT_NEAR(video.taken_rate, 5.0 / 40 * 10, 1e-6);
  ASSERT_EQ(video.frames.size(), 5u);
  for (size_t i = 0; i < video.frames.size(); ++i) {
    const Image& frame = video.frames[i];
    EXPECT_EQ(frame.width, 48);
    EXPECT_EQ(frame.height, 64);
    const auto at = [&](int64_t x, int64_t y) { return frame.rgb[static_cast<size_t>(3 * (y * 48 + x) + 1)]; };
    EXPECT_NEAR(at(10, 50) * 219 / 255.0 + 16, static_cast<double>(20 + 5 * video.at[i]), 4) << i;
    EXPECT_GT(at(40, 10), 240) << i;  // the white quarter, turned
  }
}

TEST(Videos, WhatIsNoneIsRefused) {
  if (!can_decode()) GTEST_SKIP() << "this build has no FFmpeg";
  const auto says = [&](const std::string& entry, const std::string& part) {
    test::expect_says(test::refusal(Fault::Data, [&] { taken(entry, {0}); }), part);
  };
  says(file("golden.json"), "golden.json: no video or sound that is known");
  says(file("tone.ogg"), "no pictures in it");
  says("/none.mp4", "/none.mp4: cannot read it");
  says("data:video/mp4;base64,AAAA", "data:video/mp4;base64,AAAA: ");
  const test::Folder folder;
  const std::string whole = read_file(file("turned.mp4")), cut = (folder.path / "cut.mp4").string();
  write_file_atomic(cut, whole.substr(0, whole.size() / 2));
  says(cut, "cut.mp4: ");
  // A playlist that names another file is none of the formats that are read.
  const std::string list = (folder.path / "list.m3u8").string();
  write_file_atomic(list, "#EXTM3U\n#EXTINF:1,\n" + file("turned.mp4") + "\n#EXT-X-ENDLIST\n");
  says(list, "no video or sound that is known");
}

TEST(Videos, SoundsOfOtherKindsAreHeard) {
  if (!can_decode()) GTEST_SKIP() << "this build has no FFmpeg";
  const std::vector<float> samples = read_sound(file("tone.ogg"), {});
  EXPECT_NEAR(static_cast<double>(samples.size()), 4 * 16000, 2000);
  double power = 0, part = 0, other = 0;
  for (size_t i = 8000; i < 40000; ++i) {
    const double angle = 2 * M_PI * 440 * static_cast<double>(i) / 16000;
    power += samples[i] * samples[i], part += samples[i] * std::sin(angle), other += samples[i] * std::cos(angle);
  }
  EXPECT_NEAR(std::sqrt(2 * power / 32000), 0.3 * 0.75, 0.02);
  EXPECT_NEAR(2 * std::hypot(part, other) / 32000, 0.3 * 0.75, 0.02) << "it is the tone";
}

std::string turns(const std::vector<double>& times, int64_t sounds, int64_t chunk) {
  std::string out;
  for (const VideoTurn& turn : turns_of_video_and_sound(times, sounds, chunk))
    out += str(turn.sound ? "s" : "v", turn.first, "+", turn.count, " ");
  return out;
}

TEST(SoundInVideo, TakesTurnsWithIt) {
  EXPECT_EQ(turns({0, 25, 50, 75}, 60, 50), "v0+2 s0+50 v2+2 s50+10 ");
  EXPECT_EQ(turns({0, 60, 130}, 10, 50), "v0+1 s0+10 v1+1 v2+1 ");
  EXPECT_EQ(turns({0, 200, 201}, 1, 50), "v0+1 s0+1 v1+1 v2+1 ") << "one cut at each token at most";
  EXPECT_EQ(turns({0, 0, 13, 13}, 20, 0), "v0+2 s0+13 v2+2 s13+7 ");
  EXPECT_EQ(turns({0, 6.5}, 3, 0), "v0+1 s0+3 v1+1 ");
}

// What is written is read again, whole and piece by piece: FLAC to the last bit of 16, the others as people hear it.
TEST(SoundOut, EveryFormIsReadAgain) {
  if (!can_decode()) GTEST_SKIP() << "this build has no libapus-av.so";
  std::vector<float> samples;
  for (int i = 0; i < 24000; ++i) samples.push_back(0.4F * std::sin(static_cast<float>(i) * 0.11F));
  const test::Folder folder;
  for (const char* form : {"wav", "flac", "mp3", "opus", "aac"}) {
    const auto out = open_sound_out(form, 24000);
    std::string bytes;
    for (size_t at = 0; at < samples.size(); at += 1000)
      bytes += out->add({samples.begin() + static_cast<long>(at), samples.begin() + static_cast<long>(at) + 1000});
    bytes += out->end();
    if (form != std::string("wav")) {
      EXPECT_EQ(bytes, sound_bytes(form, samples, 24000)) << form;
    }
    const auto path = folder.path / form;
    write_file_atomic(path, bytes);
    const std::vector<float> heard = read_sound(path.string(), {});  // at 16 kHz
    EXPECT_NEAR(static_cast<double>(heard.size()), 16000, 1500) << form;
    double size = 0;  // in the middle: some begin with silence of their own
    for (size_t i = 4000; i < 12000; ++i) size += heard.at(i) * heard.at(i);
    EXPECT_NEAR(std::sqrt(size / 8000), 0.4 / std::sqrt(2.0), 0.02) << form;
  }
  EXPECT_LT(sound_bytes("mp3", samples, 24000).size(), 14000U) << "96 kbit a second";
}

}  // namespace
}  // namespace apus
