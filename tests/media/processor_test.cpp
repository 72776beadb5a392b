// SPDX-License-Identifier: Apache-2.0
#include "media/processor.h"

#include <gtest/gtest.h>

#include "tests/media/golden_numbers.h"
#include "tests/refusal.h"

namespace apus {
namespace {

MediaCheckpoint checkpoint_of(const std::string& type, Json preprocessor, Json config = Json::object(),
                              std::map<std::string, double> settings = {}) {
  config["model_type"] = type;
  return {std::move(config), std::move(preprocessor), nullptr, MediaSettings(std::move(settings)), std::nullopt};
}

void expect_grid(const test::ProcessorNumbers& golden, const std::string& name, const MediaContent& content) {
  const auto grid = golden.values<int64_t>(name);
  EXPECT_EQ(std::vector<int64_t>(content.grid.begin(), content.grid.end()), grid) << name;
}

TEST(Processors, PatchesOfQwen) {
  const test::ProcessorNumbers golden;
  for (const std::string family : {"qwen2_vl", "qwen3_vl"}) {
    const auto processor = make_media_processor(checkpoint_of(family, golden.preprocessor(family)));
    ASSERT_TRUE(processor);
    for (const std::string number : {"0", "1", "2"}) {
      const std::string name = family + "/" + number;
      if (!golden.has(name + "/pixel_values")) continue;
      const PreparedMedia made = processor->image(golden.image(name + "/image_u8_hwc"));
      expect_grid(golden, name + "/image_grid_thw", *made.content);
      golden.expect_near(name + "/pixel_values", made.content->values, test::kPixels);
      EXPECT_EQ(made.content->shape[0], 24);
      ASSERT_EQ(made.runs.size(), 1u);
      EXPECT_EQ(made.runs[0].size(), 6u);
    }
  }
}

TEST(Processors, GreyAndAlphaBecomeColour) {
  const test::ProcessorNumbers golden;
  const auto processor = make_media_processor(checkpoint_of("qwen2_vl", golden.preprocessor("qwen2_vl")));
  std::vector<float> all;
  for (const std::string name : {"rgb", "gray", "rgba"}) {
    const PreparedMedia made = processor->image(golden.image("qwen2_vl/multi/" + name + "_u8"));
    all.insert(all.end(), made.content->values.begin(), made.content->values.end());
  }
  golden.expect_near("qwen2_vl/multi/pixel_values", all, test::kPixels);
}

TEST(Processors, TilesOfInternVl) {
  const test::ProcessorNumbers golden;
  const Json config = {{"vision_config", {{"image_size", {28, 28}}, {"patch_size", {14, 14}}}}};
  const auto processor = make_media_processor(checkpoint_of("internvl", golden.preprocessor("internvl"), config));
  for (const std::string number : {"0", "1", "2"}) {
    const std::string name = "internvl/" + number;
    const PreparedMedia made = processor->image(golden.image(name + "/image_u8_hwc"));
    const int64_t tiles = golden.values<int64_t>(name + "/num_patches")[0];
    EXPECT_EQ(made.content->shape, (std::vector<int64_t>{tiles, 3, 28, 28}));
    golden.expect_near(name + "/pixel_values", made.content->values, test::kPixels);
    EXPECT_EQ(made.runs[0].size(), static_cast<size_t>(tiles));  // (28 / 14)^2 / 4 tokens each
  }
}

TEST(Processors, PatchesOfOvis) {
  const test::ProcessorNumbers golden;
  const auto processor = make_media_processor(
      checkpoint_of("ovis2_5", Json{{"resample", 3}}, Json::object(), {{"MIN_PIXELS", 1024}, {"MAX_PIXELS", 8192}}));
  const PreparedMedia made = processor->image(golden.image("ovis2_5/1/image_u8_hwc"));
  expect_grid(golden, "ovis2_5/1/grid_thws", *made.content);
  golden.expect_near("ovis2_5/1/pixel_values", made.content->values, test::kPixels);
  EXPECT_EQ(made.runs[0], (std::vector<int32_t>{-301, -300, -300, -300, -300, -300, -300, -302}));
}

TEST(Processors, VideosOfQwen3CarryTheirTimes) {
  const test::ProcessorNumbers golden;
  const auto processor = make_media_processor(checkpoint_of("qwen3_vl", golden.preprocessor("qwen3_vl")));
  const auto bytes = golden.values<uint8_t>("qwen3_vl/video/frames_u8_tchw");
  VideoFrames video;
  for (size_t t = 0; t < 5; ++t) {
    Image frame{96, 64, {}};
    for (size_t i = 0; i < 64 * 96; ++i)
      for (size_t c = 0; c < 3; ++c) frame.rgb.push_back(bytes[(t * 3 + c) * 64 * 96 + i]);
    video.frames.push_back(frame);
    video.at.push_back(static_cast<int64_t>(t));
  }
  video.rate = video.taken_rate = 2;
  const PreparedMedia made = processor->video(video);
  expect_grid(golden, "qwen3_vl/video/video_grid_thw", *made.content);
  golden.expect_near("qwen3_vl/video/pixel_values_videos", made.content->values, test::kPixels);
  const std::string pad = "<|vision_start|><|video_pad|><|vision_end|>";
  EXPECT_EQ(made.text, "<0.2 seconds>" + pad + "<1.2 seconds>" + pad + "<2.0 seconds>" + pad);
  ASSERT_EQ(made.runs.size(), 3u);
  EXPECT_EQ(made.runs[2].size(), 6u);
  EXPECT_EQ(made.content->seconds_per_grid, 1);
}

TEST(Frames, AreThoseOfTheOriginal) {
  const test::ProcessorNumbers golden;
  for (const Json& one : golden.json["qwen3_vl/video_sampling"]) {
    const double rate = one["video_fps"].is_number() ? one["video_fps"].get<double>() : 0;
    const auto at =
        qwen3_frames(one["total_num_frames"].get<int64_t>(), rate, {one["sample_fps"].get<double>(), 4, 768});
    EXPECT_EQ(at, one["frame_indices"].get<std::vector<int64_t>>());
    const auto seconds = group_seconds(at, rate, 2);
    const auto wanted = one["timestamps"].get<std::vector<double>>();
    ASSERT_EQ(seconds.size(), wanted.size());
    for (size_t i = 0; i < seconds.size(); ++i) EXPECT_NEAR(seconds[i], wanted[i], 1e-12);
  }
}

TEST(Frames, EvenNumbersOfThem) {
  EXPECT_EQ(even_frames(100, 25, {}).size(), 8u);  // four seconds
  EXPECT_EQ(even_frames(7, 30, {}).size(), 4u);
  EXPECT_EQ(even_frames(100000, 25, {}).size(), 768u);
  EXPECT_EQ(even_frames(3, 1, {}), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(middle_frames(81, 4), (std::vector<int64_t>{10, 30, 50, 70}));
}

TEST(Processors, EqualContentsHaveOneDigest) {
  const test::ProcessorNumbers golden;
  const auto processor = make_media_processor(checkpoint_of("qwen2_vl", golden.preprocessor("qwen2_vl")));
  Image image = golden.image("qwen2_vl/1/image_u8_hwc");
  const std::string first = processor->image(image).content->digest;
  EXPECT_EQ(processor->image(image).content->digest, first);
  image.rgb[500] ^= 128;
  EXPECT_NE(processor->image(image).content->digest, first);
}

TEST(Processors, SettingsBoundThePixels) {
  const Image image{640, 480, std::vector<uint8_t>(640 * 480 * 3, 1)};
  const auto tokens = [&](std::map<std::string, double> settings) {
    return make_media_processor(checkpoint_of("qwen2_vl", nullptr, Json::object(), std::move(settings)))
        ->image(image)
        .runs[0]
        .size();
  };
  EXPECT_EQ(tokens({}), 23u * 17u);
  EXPECT_LE(tokens({{"IMAGE_MAX_TOKEN_NUM", 50}}), 50u);
  EXPECT_EQ(tokens({{"MAX_PIXELS", 50 * 784 + 3}}), tokens({{"IMAGE_MAX_TOKEN_NUM", 50}}));
  EXPECT_EQ(tokens({{"IMAGE_MAX_TOKEN_NUM", 50}, {"MAX_PIXELS", 784}}), tokens({{"IMAGE_MAX_TOKEN_NUM", 50}}));
  EXPECT_GE(tokens({{"MIN_PIXELS", 1000 * 784}}), 1000u);
  test::expect_says(test::refusal(Fault::Usage, [&] { tokens({{"MAX_PIXELS", 100}}); }), "raise MAX_PIXELS");
  test::expect_says(test::refusal(Fault::Usage,
                                  [&] {
                                    tokens({{"MAX_PIXELS", 7840}, {"MIN_PIXELS", 78400}});
                                  }),
                    "lower MIN_PIXELS");
}

TEST(Processors, ThereIsNoneForAModelOfText) { EXPECT_FALSE(make_media_processor(checkpoint_of("qwen3", nullptr))); }

}  // namespace
}  // namespace apus
