// SPDX-License-Identifier: Apache-2.0
// Pictures in windows and lines, and a video's frames, as processors of further families make them, against
// transformers' own.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/media/golden_numbers.h"
#include "tests/media/tower_processor.h"

namespace apus {
namespace {

using test::tower_of;
using test::tower_processor;

TEST(WindowPictures, LinesOfHunyuanOcr) {
  const test::ProcessorNumbers golden("towers");
  Json said = golden.json["hunyuan_vl"];
  said["resample"] = 1;  // as in its files, whose own processor takes a cubic all the same
  const auto processor = tower_processor("hunyuan_vl", said, {{"image_token_id", 7}});
  for (const std::string number : {"0", "1"}) {
    const PreparedMedia made = processor->image(golden.image("picture/" + number));
    EXPECT_EQ(made.content->shape, golden.shape("hunyuan_vl/" + number));
    golden.expect_near("hunyuan_vl/" + number, made.content->values, test::kPixels);
    const auto grid = golden.values<int64_t>("hunyuan_vl/" + number + "/grid");
    EXPECT_EQ(made.content->grid, (std::array<int64_t, 3>{grid[0], grid[1], grid[2]}));
    EXPECT_EQ(made.runs[0], std::vector<int32_t>(static_cast<size_t>(grid[1] / 2 * (grid[2] / 2 + 1) + 2), 7));
    EXPECT_EQ(made.text, "<｜hy_place▁holder▁no▁100｜><｜hy_place▁holder▁no▁102｜><｜hy_place▁holder▁no▁101｜>");
  }
}

TEST(WindowPictures, SquaresOfMolmo2) {
  const test::ProcessorNumbers golden("towers");
  const Json config = {{"image_start_token_id", 5}, {"image_end_token_id", 6},           {"image_patch_id", 7},
                       {"image_col_id", 8},         {"low_res_image_start_token_id", 9}, {"frame_start_token_id", 10},
                       {"frame_end_token_id", 11}};
  const auto processor = tower_processor("molmo2", golden.json["molmo2"], config);
  const auto lines = [](int32_t start, int64_t high, int64_t wide, bool columns, int32_t end) {
    std::vector<int32_t> run = {start};
    for (int64_t line = 0; line < high; ++line) {
      run.insert(run.end(), static_cast<size_t>(wide), 7);
      if (columns) run.push_back(8);
    }
    run.push_back(end);
    return run;
  };
  for (const std::string number : {"0", "1"}) {
    const PreparedMedia made = processor->image(golden.image("picture/" + number));
    EXPECT_EQ(made.content->shape, golden.shape("molmo2/" + number));
    golden.expect_near("molmo2/" + number, made.content->values, test::kPixels);
    EXPECT_EQ(made.content->pooled, golden.values<int32_t>("molmo2/" + number + "/pooled"));
    EXPECT_EQ(made.content->pool, 4);
    const auto grid = golden.json["molmo2/" + number + "/grid"].get<std::vector<int64_t>>();
    std::vector<int32_t> run = lines(9, grid[0], grid[1], true, 6);
    for (const int32_t id : lines(5, grid[2], grid[3], true, 6)) run.push_back(id);
    EXPECT_EQ(made.runs, (std::vector<std::vector<int32_t>>{run}));
    EXPECT_EQ(made.text, "<|image|>");
  }
  VideoFrames film;
  const Image first = golden.image("picture/0");
  Image turned = first;
  for (int64_t y = 0; y < first.height; ++y)
    for (int64_t x = 0; x < first.width; ++x)
      for (int64_t c = 0; c < 3; ++c)
        turned.rgb[static_cast<size_t>((y * first.width + x) * 3 + c)] =
            first.rgb[static_cast<size_t>((y * first.width + first.width - 1 - x) * 3 + c)];
  film.frames = {first, turned}, film.at = {0, 7}, film.rate = 25;
  const PreparedMedia video = processor->video(film);
  EXPECT_EQ(video.content->shape, golden.shape("molmo2/video"));
  golden.expect_near("molmo2/video", video.content->values, test::kPixels);
  EXPECT_EQ(video.content->pooled, golden.values<int32_t>("molmo2/video/pooled"));
  std::vector<int32_t> run = lines(10, 2, 2, false, 11);
  for (const int32_t id : lines(10, 2, 2, false, 11)) run.push_back(id);
  EXPECT_EQ(video.runs, (std::vector<std::vector<int32_t>>{run}));
  EXPECT_EQ(video.text, "<|video|>");
}

TEST(WindowPictures, HowManySquaresAndFramesMolmo2Takes) {
  const test::ProcessorNumbers golden("towers");
  const auto processor = tower_processor("molmo2", Json::object(), {{"image_patch_id", 7}, {"image_col_id", 8}});
  for (const auto& row : golden.json["sizes/molmo2"].get<std::vector<std::vector<int64_t>>>()) {
    const Image picture{row[1], row[0], std::vector<uint8_t>(static_cast<size_t>(3 * row[0] * row[1]), 9)};
    const PreparedMedia made = processor->image(picture);
    EXPECT_EQ(made.content->shape[0], row[6] * 27 * 27) << row[0] << " x " << row[1];
    EXPECT_EQ(std::count(made.runs[0].begin(), made.runs[0].end(), 7), row[2] * row[3] + row[4] * row[5]);
    EXPECT_EQ(std::count(made.runs[0].begin(), made.runs[0].end(), 8), row[2] + row[4]);
  }
  for (const Json& row : golden.json["frames/molmo2"])
    EXPECT_EQ(processor->chosen_frames(row[0], row[1]), row[2].get<std::vector<int64_t>>()) << row;
}

TEST(WindowPictures, WindowsOfStep3) {
  const test::ProcessorNumbers golden("towers");
  Json config = tower_of(52, 4);
  config["image_token_id"] = 7;
  const auto processor = tower_processor("step_robotics", Json(), config);
  for (const std::string number : {"0", "1"}) {
    const PreparedMedia made = processor->image(golden.image("picture/" + number));
    EXPECT_EQ(made.content->shape, golden.shape("step3_vl/" + number));
    golden.expect_near("step3_vl/" + number, made.content->values, 2e-5);
    ASSERT_EQ(made.runs.size(), golden.json["step3_vl/" + number + "/windows"].get<size_t>() + 1);
    EXPECT_EQ(made.runs.front(), std::vector<int32_t>(9, 7));  // of 9 x 9 patches
    EXPECT_EQ(made.runs.back(), std::vector<int32_t>(16, 7));  // of 13 x 13
  }
  for (const auto& each : golden.json["sizes/step3_vl"].get<std::vector<std::vector<int64_t>>>()) {
    const int64_t window = each[4];
    const int64_t wide = window > 0 ? std::max<int64_t>(each[2] / window, 1) : 0,
                  high = window > 0 ? std::max<int64_t>(each[3] / window, 1) : 0;
    const Image picture{each[0], each[1], std::vector<uint8_t>(static_cast<size_t>(3 * each[0] * each[1]), 9)};
    const PreparedMedia made = processor->image(picture);
    std::string text;
    for (int64_t i = 1; i <= wide * high; ++i)
      text += str("<patch_start><im_patch><patch_end>", i % wide == 0 && i < wide * high ? "<patch_newline>" : "");
    EXPECT_EQ(made.text, text + "<im_start><im_patch><im_end>") << each[0] << " x " << each[1];
  }
}

}  // namespace
}  // namespace apus
