// SPDX-License-Identifier: Apache-2.0
// Pictures of odd sizes as processors of further families make them, against transformers' own (those that resize with
// Pillow), and the tokens that stand for them.
#include <gtest/gtest.h>

#include <map>

#include "media/processor.h"
#include "media/smol_video.h"
#include "models/spec/canvas_spec.h"
#include "tests/media/golden_numbers.h"
#include "tests/media/tower_processor.h"
#include "tests/refusal.h"

namespace apus {
namespace {

constexpr double kFramePixels = 0.02;  // two levels: frames are resized in floats there
constexpr double kTowerPixels = 2e-6;  // three roundings of single precision

using test::tower_of;
using test::tower_processor;

struct PictureCase {
  const char *name, *type;
  Json config;
  size_t tokens;  // of a run, marks among them
};

TEST(TowerPictures, SquaresAndTilesAreTransformers) {
  const test::ProcessorNumbers golden("towers");
  Json gemma = tower_of(24, 8), idefics = tower_of(16, 4);
  gemma["mm_tokens_per_image"] = 9, idefics["scale_factor"] = 2;
  const Json gemma3n = {{"vision_soft_tokens_per_image", 9}};
  // Of 7 tiles with 4 tokens each: their own marks, that behind them, and words that no tokenizer is here to write.
  const std::vector<PictureCase> cases = {{"gemma3", "gemma3", gemma, 9 + 2},
                                          {"gemma3n", "gemma3n", gemma3n, 9 + 2},
                                          {"llava", "llava", tower_of(24, 8), 9},
                                          {"deepseek_vl", "deepseek_vl", tower_of(24, 8), 9},
                                          {"llava_padded", "llava", tower_of(24, 8), 9},
                                          {"idefics3", "idefics3", idefics, 7 * (1 + 4) + 1},
                                          {"idefics3_whole", "smolvlm", idefics, 1 + 4 + 1}};
  for (const PictureCase& c : cases)
    for (const char* number : {"0", "1"}) {
      const std::string name = std::string(c.name) + "/" + number;
      const auto processor = tower_processor(c.type, golden.json[c.name], c.config);
      const PreparedMedia made = processor->image(golden.image(std::string("picture/") + number));
      std::vector<int64_t> shape = golden.shape(name);
      if (shape.size() == 5) shape.erase(shape.begin());
      EXPECT_EQ(made.content->shape, shape) << name;
      golden.expect_near(name, made.content->values, kTowerPixels);
      ASSERT_EQ(made.runs.size(), 1u);
      EXPECT_EQ(made.runs[0].size(), c.tokens) << name;
    }
}

// Rows of patches as planes [3, height, width].
std::vector<float> planes_of(const MediaContent& content, int64_t patch, int64_t merge) {
  const int64_t height = content.grid[1] * patch, width = content.grid[2] * patch;
  std::vector<float> out(static_cast<size_t>(3 * height * width));
  const float* from = content.values.data();
  for (int64_t i = 0; i < content.grid[1]; i += merge)
    for (int64_t j = 0; j < content.grid[2]; j += merge)
      for (int64_t r = i; r < i + merge; ++r)
        for (int64_t c = j; c < j + merge; ++c)
          for (int64_t colour = 0; colour < 3; ++colour)
            for (int64_t y = 0; y < patch; ++y)
              for (int64_t x = 0; x < patch; ++x)
                out[static_cast<size_t>((colour * height + r * patch + y) * width + c * patch + x)] = *from++;
  return out;
}

TEST(TowerPictures, PatchesOfPixtral) {
  const test::ProcessorNumbers golden("towers");
  for (const int64_t merge : {2, 1}) {  // of patches that make the same squares of 8 pixels
    Json config = tower_of(40, 8 / merge, "pixtral");
    config["spatial_merge_size"] = merge;
    for (const char* number : {"0", "1"}) {
      const std::string name = std::string("mistral3/") + number;
      const auto processor = tower_processor(merge == 2 ? "mistral3" : "llava", golden.json["mistral3"], config);
      const PreparedMedia made = processor->image(golden.image(std::string("picture/") + number));
      golden.expect_near(name, planes_of(*made.content, 8 / merge, merge), kTowerPixels);
      EXPECT_EQ(made.content->grid[1] * 8 / merge, golden.shape(name)[2]) << name;
      // A mark behind each row of squares.
      const int64_t rows = golden.shape(name)[2] / 8, columns = golden.shape(name)[3] / 8;
      EXPECT_EQ(made.runs[0].size(), static_cast<size_t>(rows * (columns + 1))) << name;
      if (merge == 1) continue;
      const PreparedMedia bare = tower_processor("lighton_ocr", golden.json["mistral3"], config)
                                     ->image(golden.image(std::string("picture/") + number));
      EXPECT_EQ(bare.content->values, made.content->values) << name;
      EXPECT_EQ(bare.runs[0].size(), static_cast<size_t>(rows * columns)) << name;
    }
  }
}

TEST(TowerPictures, RowsOfPatches) {
  const test::ProcessorNumbers golden("towers");
  for (const auto& [type, key] : {std::pair{"glm4v", "glm4v"},
                                  {"glm_ocr", "glm4v"},
                                  {"paddleocr_vl", "paddleocr_vl"},
                                  {"ernie4_5_vl_moe", "ernie4_5_vl_moe"},
                                  {"ernie4_5_moe_vl", "ernie4_5_vl_moe"}})
    for (const char* number : {"0", "1"}) {
      const std::string name = std::string(key) + "/" + number;
      const auto processor = tower_processor(type, golden.json[key], Json::object());
      const PreparedMedia made = processor->image(golden.image(std::string("picture/") + number));
      const auto grid = golden.values<int64_t>(name + "/grid");
      EXPECT_EQ(std::vector<int64_t>(made.content->grid.begin(), made.content->grid.end()), grid) << name;
      EXPECT_EQ(made.content->shape, golden.shape(name)) << name;
      golden.expect_near(name, made.content->values, test::kPixels);
      ASSERT_EQ(made.runs.size(), 1u);
      EXPECT_EQ(made.runs[0].size(), static_cast<size_t>(grid[1] * grid[2] / 4)) << name;
    }
}

TEST(TowerPictures, ErnieNumbersItsPictures) {
  const auto processor = tower_processor("ernie4_5_vl_moe", Json(), {{"image_token_id", 7}});
  const PreparedMedia made =
      processor->image(Image{.width = 56, .height = 84, .rgb = std::vector<uint8_t>(56 * 84 * 3)});
  EXPECT_EQ(processor->counted(made.text, 1), "Picture 2:<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>");
  EXPECT_EQ(made.runs[0], std::vector<int32_t>(6, 7));
  VideoFrames video;
  video.frames.resize(2, Image{.width = 56, .height = 56, .rgb = std::vector<uint8_t>(56 * 56 * 3)});
  test::expect_says(test::refusal(Fault::Data, [&] { processor->video(video); }), "drawn on the frames");
}

// All of a picture, and slices of other sizes: several grids in one content, and a run of tokens for each.
TEST(TowerPictures, SlicesOfMiniCpm) {
  const test::ProcessorNumbers golden("towers");
  for (const char* number : {"0", "1"}) {
    const std::string name = std::string("minicpmv4_6/") + number;
    const auto processor = tower_processor("minicpmv4_6", golden.json["minicpmv4_6"], Json::object());
    const PreparedMedia made = processor->image(golden.image(std::string("picture/") + number));
    const auto grids = golden.values<int64_t>(name + "/grids");
    const auto slices = golden.json[name + "/slices"].get<std::vector<size_t>>();
    ASSERT_EQ(made.content->grids.size(), grids.size() / 2) << name;
    ASSERT_EQ(made.runs.size(), 1 + slices[0] * slices[1]) << name;
    for (size_t i = 0; i < made.runs.size(); ++i) {
      EXPECT_EQ(made.content->grids[i], (std::array<int64_t, 3>{1, grids[2 * i], grids[2 * i + 1]})) << name;
      EXPECT_EQ(made.runs[i].size(), static_cast<size_t>(grids[2 * i] * grids[2 * i + 1] / 16)) << name;
    }
    golden.expect_near(name, made.content->values, test::kPixels);
    std::string text = "<image><|image_pad|></image>";
    for (size_t i = 0; i < slices[0] * slices[1]; ++i)
      text += str(i > 0 && i % slices[1] == 0 ? "\n" : "", "<slice><|image_pad|></slice>");
    EXPECT_EQ(made.text, text);
    EXPECT_EQ(processor->counted(made.text, 1), "<image_id>1</image_id>" + text);
  }
}

// Before 4.6 each of these pictures has as many tokens as there are queries; of 2.5 the slices share one pair of marks.
TEST(TowerPictures, QueriesOfMiniCpm) {
  const Json form = {{"patch_size", 14}, {"scale_resolution", 56}, {"max_slice_nums", 4}};
  const Image wide{112, 56, std::vector<uint8_t>(size_t{3} * 112 * 56, 90)};
  const std::string picture = "<image><unk></image>", slice = "<slice><unk></slice>";
  for (const auto& [version, text] : {std::pair{2.5, picture + "<slice>" + picture + picture + "</slice>\n"},
                                      std::pair{2.6, picture + slice + slice + "\n"}}) {
    const auto processor = tower_processor("minicpmv", form, {{"query_num", 5}, {"version", version}});
    const PreparedMedia made = processor->image(wide);
    EXPECT_EQ(made.text, text);
    EXPECT_EQ(made.content->grids, (std::vector<std::array<int64_t, 3>>{{1, 3, 6}, {1, 4, 4}, {1, 4, 4}}));
    ASSERT_EQ(made.runs.size(), 3u);
    for (const auto& run : made.runs) EXPECT_EQ(run.size(), 5u);
    EXPECT_EQ(processor->counted(text, 2), version > 2.55 ? "<image_id>2</image_id>" + text : text);
  }
}

TEST(TowerPictures, TilesOfLfm2) {
  const test::ProcessorNumbers golden("towers");
  size_t most = 0;
  for (const char* number : {"0", "1"}) {
    const std::string name = std::string("lfm2_vl/") + number;
    const auto processor = tower_processor("lfm2_vl", golden.json["lfm2_vl"], {{"image_token_id", 7}});
    const PreparedMedia made = processor->image(golden.image(std::string("picture/") + number));
    const auto shapes = golden.values<int64_t>(name + "/shapes");
    const auto grid = golden.json[name + "/tiles"].get<std::vector<size_t>>();
    ASSERT_EQ(made.content->grids.size(), shapes.size() / 2) << name;
    ASSERT_EQ(made.runs.size(), made.content->grids.size());
    for (size_t i = 0; i < made.runs.size(); ++i) {
      EXPECT_EQ(made.content->grids[i], (std::array<int64_t, 3>{1, shapes[2 * i], shapes[2 * i + 1]})) << name;
      EXPECT_EQ(made.runs[i], std::vector<int32_t>(static_cast<size_t>(shapes[2 * i] * shapes[2 * i + 1] / 4), 7));
    }
    golden.expect_near(name, made.content->values, test::kPixels);
    std::string text = "<|image_start|>";
    for (size_t i = 0; i < grid[0] * grid[1] && grid[0] * grid[1] > 1; ++i)
      text += str("<|img_row_", i / grid[1] + 1, "_col_", i % grid[1] + 1, "|><image>");
    EXPECT_EQ(made.text, text + (grid[0] * grid[1] > 1 ? "<|img_thumbnail|>" : "") + "<image><|image_end|>");
    most = std::max(most, grid[0] * grid[1]);
  }
  EXPECT_GT(most, 1u);
}

TEST(TowerPictures, PatchesAndFramesOfGemma4) {
  const test::ProcessorNumbers golden("towers");
  const auto processor =
      tower_processor("gemma4", golden.json["gemma4"], {{"image_token_id", 7}, {"video_token_id", 8}});
  for (const char* number : {"0", "1"}) {
    const std::string name = std::string("gemma4/") + number;
    const PreparedMedia made = processor->image(golden.image(std::string("picture/") + number));
    const auto grid = golden.values<int64_t>(name + "/grid");
    EXPECT_EQ(made.content->grid, (std::array<int64_t, 3>{1, grid[1], grid[2]})) << name;
    golden.expect_near(name, made.content->values, test::kPixels);
    EXPECT_EQ(made.text, "<|image><|image|><image|>");
    EXPECT_EQ(made.runs,
              (std::vector<std::vector<int32_t>>{std::vector<int32_t>(static_cast<size_t>(grid[1] * grid[2] / 4), 7)}));
  }
  for (const Json& row : golden.json["sizes/gemma4"]) {
    const auto n = row.get<std::vector<int64_t>>();
    EXPECT_EQ(gemma4_size({n[1], n[0]}, 16, 48, 70 * 9), (ImageSize{n[3], n[2]})) << row.dump();
  }
  EXPECT_EQ(processor->chosen_frames(4, 25), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(processor->chosen_frames(64, 25).size(), 32U);
  EXPECT_EQ(processor->chosen_frames(64, 25)[5], 10);
  const Image frame = golden.image("picture/0");
  const PreparedMedia video = processor->video({.frames = {frame, frame}, .at = {0, 200}, .rate = 2});
  EXPECT_EQ(video.text, "00:00 <|image><|video|><image|> 01:40 <|image><|video|><image|>");
  EXPECT_EQ(video.content->grid[0], 2);
}

// The tokens of a run, each letter as many as it stands for.
std::vector<int32_t> run_of(const std::string& marks, const std::map<char, std::vector<int32_t>>& of) {
  std::vector<int32_t> run;
  for (const char c : marks) run.insert(run.end(), of.at(c).begin(), of.at(c).end());
  return run;
}

TEST(TowerPictures, TilesOfOvis) {
  const test::ProcessorNumbers golden("towers");
  Json config = tower_of(16, 4);
  config["vision_config"]["hidden_stride"] = 2, config["image_token_id"] = 7;
  for (const char* number : {"0", "1"}) {
    const std::string name = std::string("ovis2/") + number;
    const PreparedMedia made =
        tower_processor("ovis2", golden.json["ovis2"], config)->image(golden.image(std::string("picture/") + number));
    EXPECT_EQ(made.content->shape, golden.shape(name)) << name;
    golden.expect_near(name, made.content->values, kTowerPixels);
    const auto grid = golden.json[name + "/grid"].get<std::vector<int64_t>>();  // lines, columns
    const auto atoms = std::count(made.runs[0].begin(), made.runs[0].end(), 7);
    EXPECT_EQ(atoms, 4 * (1 + grid[0] * grid[1])) << name;
  }
  // Its own files: each tile keeps its shape, and noughts fill the square. 61 x 37 pixels in tiles of 16.
  const Json tokenizer = {{"hidden_stride", 2}, {"backbone_config", {{"image_size", 16}, {"patch_size", 4}}}};
  const auto own = tower_processor("ovis", Json::object(), {{"visual_tokenizer_config", tokenizer}});
  const PreparedMedia made = own->image(golden.image("picture/0"));
  EXPECT_EQ(made.text, "<|image_pad|>\n");
  ASSERT_EQ(made.content->shape, (std::vector<int64_t>{1 + 2 * 4, 3, 16, 16}));
  EXPECT_EQ(made.runs[0], run_of("bagacacacaracacacae", {{'b', {-301}},
                                                         {'a', std::vector<int32_t>(4, -300)},
                                                         {'g', {-302}},
                                                         {'c', {-303}},
                                                         {'r', {-304}},
                                                         {'e', {-305}}}));
  // All of it is 16 x 9 pixels: three lines of noughts above.
  for (size_t i = 0; i < 3 * 16; ++i) ASSERT_EQ(made.content->values[i], 0.0F) << i;
  EXPECT_NE(made.content->values[3 * 16], 0.0F);
  const PreparedMedia small = own->image({16, 12, std::vector<uint8_t>(16 * 12 * 3, 9)});
  EXPECT_EQ(small.content->shape[0], 1);
}

TEST(TowerPictures, TilesOfLlama4) {
  const test::ProcessorNumbers golden("towers");
  Json config = tower_of(16, 4);
  config["image_token_index"] = 7;
  const auto processor = tower_processor("llama4", golden.json["llama4"], config);
  for (const char* number : {"0", "1"}) {
    const std::string name = std::string("llama4/") + number;
    const PreparedMedia made = processor->image(golden.image(std::string("picture/") + number));
    EXPECT_EQ(made.content->shape, golden.shape(name)) << name;
    golden.expect_near(name, made.content->values, kFramePixels);
    const auto grid = golden.json[name + "/grid"].get<std::vector<size_t>>();
    ASSERT_EQ(made.runs.size(), grid[0] * grid[1] + 1) << name;
    for (const auto& run : made.runs) EXPECT_EQ(run, std::vector<int32_t>(4, 7));
    std::string text = "<|image_start|>";
    for (size_t y = 0; y < grid[0]; ++y) {
      for (size_t x = 0; x < grid[1]; ++x) text += x + 1 < grid[1] ? "<|patch|><|tile_x_separator|>" : "<|patch|>";
      text += "<|tile_y_separator|>";
    }
    EXPECT_EQ(made.text, text + "<|image|><|patch|><|image_end|>");
  }
  // Which grid a picture has shows in its tiles.
  const auto large = tower_processor("llama4", {{"max_patches", 16}}, tower_of(336, 14));
  for (const Json& row : golden.json["sizes/llama4"]) {
    const auto n = row.get<std::vector<int64_t>>();
    if (n[0] * n[1] > 1000000) continue;
    const auto black = std::vector<uint8_t>(static_cast<size_t>(n[0] * n[1] * 3));
    const auto tiles = static_cast<size_t>(n[2] * n[3]);
    EXPECT_EQ(large->views({n[1], n[0], black}).size(), tiles > 1 ? tiles + 1 : 1) << row.dump();
  }
}

TEST(TowerPictures, CanvasesOfMllama) {
  const test::ProcessorNumbers golden("towers");
  Json config = tower_of(16, 4);
  config["vision_config"]["max_num_tiles"] = 4, config["image_token_index"] = 7;
  const auto processor = tower_processor("mllama", golden.json["mllama"], config);
  CanvasSpec canvas{.tiles = 4};
  for (const char* number : {"0", "1"}) {
    const std::string name = std::string("mllama/") + number;
    const PreparedMedia made = processor->image(golden.image(std::string("picture/") + number));
    EXPECT_EQ(made.content->shape, golden.shape(name)) << name;
    golden.expect_near(name, made.content->values, kTowerPixels);
    const CanvasTiles tiles{made.content->came_as[0], made.content->came_as[1]};
    EXPECT_EQ(canvas.shape_number(tiles), golden.json[name + "/shape"].get<int64_t>());
    EXPECT_EQ(canvas.tiles_of(canvas.shape_number(tiles)).wide, tiles.wide);
    EXPECT_EQ(made.text, "<|image|>");
    EXPECT_EQ(made.runs, (std::vector<std::vector<int32_t>>{{7}}));
  }
  config = tower_of(560, 14), config["vision_config"]["max_num_tiles"] = 4;
  const auto large = tower_processor("mllama", Json(), config);
  for (const Json& row : golden.json["sizes/mllama"]) {
    const auto n = row.get<std::vector<int64_t>>();
    if (n[0] * n[1] > 1000000) continue;
    const auto black = std::vector<uint8_t>(static_cast<size_t>(n[0] * n[1] * 3));
    const PreparedMedia made = large->image({n[1], n[0], black});
    EXPECT_EQ(made.content->came_as, (std::array<int64_t, 2>{n[2], n[3]})) << row.dump();
  }
  const auto refusal = [&](const Json& file) {
    return test::refusal(Fault::Model, [&] { tower_processor("mllama", file, config); });
  };
  test::expect_says(refusal({{"max_image_tiles", 6}}), "max_num_tiles, 4");
  test::expect_says(refusal({{"size", {{"height", 224}, {"width", 224}}}}), "560 x 560");
}

TEST(TowerPictures, PagesOfDeepseekOcr) {
  const test::ProcessorNumbers golden("towers");
  const Json native = {{"image_token_id", 7}, {"vision_config", {{"sam_config", {{"patch_size", 4}}}}}};
  const Json own = {
      {"image_token_id", 7},
      {"vision_config", {{"width", {{"clip-l-14-224", {{"width", 8}}}, {"sam_vit_b", {{"patch_size", 4}}}}}}}};
  for (const char* number : {"0", "1"}) {
    const std::string name = std::string("deepseek_ocr2/") + number;
    const Image picture = golden.image(std::string("picture/") + number);
    const PreparedMedia made = tower_processor("deepseek_ocr2", golden.json["deepseek_ocr2"], native)->image(picture);
    const auto tiles = golden.json[name + "/grid"].get<size_t>();
    ASSERT_EQ(made.content->grids.size(), tiles + 1) << name;
    std::vector<float> planes;
    size_t first = 0;
    for (const auto& grid : made.content->grids) {
      MediaContent view;
      view.grid = grid;
      const auto count = static_cast<size_t>(grid[1] * grid[2] * 48);
      view.values.assign(made.content->values.begin() + static_cast<std::ptrdiff_t>(first),
                         made.content->values.begin() + static_cast<std::ptrdiff_t>(first + count));
      first += count;
      if (grid[1] == 8) golden.expect_near(name, planes_of(view, 4, 1), kTowerPixels);
      if (grid[1] == 4)
        for (const float x : planes_of(view, 4, 1)) planes.push_back(x);
    }
    golden.expect_near(name + "/tiles", planes, kTowerPixels);
    EXPECT_EQ(made.text, "<image>\n");
    EXPECT_EQ(made.runs[0], std::vector<int32_t>(4 + tiles + 1, 7)) << name;
    // The first one's lines have ends: of the page's two rows, and of the tiles' as they stand in the grid.
    const PreparedMedia lines = tower_processor("deepseek_vl_v2", golden.json["deepseek_ocr2"], own)->image(picture);
    const auto [rows, columns] = lines.content->came_as;
    EXPECT_EQ(static_cast<size_t>(rows * columns), tiles);
    EXPECT_EQ(lines.runs[0].size(), static_cast<size_t>(2 * 3 + rows * (columns + 1) + 1)) << name;
  }
  const Image small{16, 9, std::vector<uint8_t>(16 * 9 * 3, 200)};
  EXPECT_EQ(tower_processor("deepseek_vl_v2", golden.json["deepseek_ocr2"], own)->image(small).content->grids.size(),
            1u);
}

TEST(TowerPictures, SquaresOfGot) {
  const test::ProcessorNumbers golden("towers");
  Json config = tower_of(24, 4);
  config["image_token_index"] = 7;
  for (const char* number : {"0", "1"}) {
    const std::string name = std::string("got_ocr2/") + number;
    const PreparedMedia made = tower_processor("got_ocr2", golden.json["got_ocr2"], config)
                                   ->image(golden.image(std::string("picture/") + number));
    golden.expect_near(name, planes_of(*made.content, 4, 1), kTowerPixels);
    EXPECT_EQ(made.text, "<img><imgpad></img>\n");
    EXPECT_EQ(made.runs[0], std::vector<int32_t>(4, 7)) << "six patches a side become three, and these two";
  }
}

TEST(TowerPictures, FramesOfLlavaNextVideo) {
  const test::ProcessorNumbers golden("towers");
  Json config = tower_of(24, 6);
  config["image_grid_pinpoints"] = {{24, 48}, {48, 24}};
  config["video_token_index"] = 9;
  const auto processor = tower_processor("llava_next_video", Json::object(), config);
  const Image frame = golden.image("picture/0");
  const PreparedMedia made = processor->video({{frame, frame}, {0, 25}, 25, 1});
  // The middle of a frame whose shorter side was brought to the square's: as Llava 1.5 has pictures.
  const Json file = {{"size", {{"shortest_edge", 24}}}, {"crop_size", {{"height", 24}, {"width", 24}}}};
  const std::vector<float> square = tower_processor("llava", file, tower_of(24, 8))->image(frame).content->values;
  EXPECT_EQ(made.content->shape, (std::vector<int64_t>{2, 3, 24, 24}));
  for (size_t i = 0; i < made.content->values.size(); ++i)
    ASSERT_EQ(made.content->values[i], square[i % (3 * 24 * 24)]) << i;
  EXPECT_EQ(made.runs[0], std::vector<int32_t>(2 * 2 * 2, 9))
      << "four patches a side become two, and nothing is behind";
  EXPECT_EQ(processor->chosen_frames(31, 25),
            (std::vector<int64_t>{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30}));
  EXPECT_EQ(processor->chosen_frames(3, 25).size(), 16u);
}

TEST(TowerPictures, SizesAndFramesOfGlm) {
  const test::ProcessorNumbers golden("towers");
  for (const Json& row : golden.json["sizes/glm4v"]) {
    const auto n = row.get<std::vector<int64_t>>();
    const ImageSize got = glm_size(n[0], {n[2], n[1]}, {28, 112 * 112, 28 * 28 * 60}, 2);
    EXPECT_EQ(got, (ImageSize{n[4], n[3]})) << row.dump();
  }
  for (const Json& row : golden.json["frames/glm4v"])
    EXPECT_EQ(glm_frames(row[0].get<int64_t>(), row[1].get<double>(), 2, 600), row[2].get<std::vector<int64_t>>());
}

TEST(TowerPictures, SizesOfKimi) {
  const test::ProcessorNumbers golden("towers");
  for (const Json& row : golden.json["sizes/kimi_k25"]) {
    const auto n = row.get<std::vector<int64_t>>();
    EXPECT_EQ(kimi_size({n[1], n[0]}, 4, 64, 24), (ImageSize{n[3], n[2]})) << row.dump();
    const Json k25 = {{"media_proc_cfg", {{"in_patch_limit", 64}, {"patch_limit_on_one_side", 24}, {"patch_size", 4}}}};
    const PreparedMedia of_k25 = tower_processor("kimi_k25", k25, {{"media_placeholder_token_id", 7}})
                                     ->image({n[1], n[0], std::vector<uint8_t>(static_cast<size_t>(n[0] * n[1] * 3))});
    EXPECT_EQ(of_k25.content->grid, (std::array<int64_t, 3>{1, n[4] / 4, n[5] / 4})) << row.dump();
    EXPECT_EQ(of_k25.runs[0], std::vector<int32_t>(static_cast<size_t>(n[4] * n[5] / 64), 7)) << row.dump();
    // Filled up to cells of 2 x 2 patches.
    const Json file = {{"in_token_limit", 64}, {"patch_size", 4}};
    const PreparedMedia made = tower_processor("kimi_vl", file, {{"media_placeholder_token_id", 7}})
                                   ->image({n[1], n[0], std::vector<uint8_t>(static_cast<size_t>(n[0] * n[1] * 3))});
    if (std::max(n[2], n[3]) == 96) continue;  // its own bound for a side is larger
    EXPECT_EQ(made.content->grid, (std::array<int64_t, 3>{1, n[4] / 4, n[5] / 4})) << row.dump();
    EXPECT_EQ(made.runs[0], std::vector<int32_t>(static_cast<size_t>(n[4] * n[5] / 64), 7)) << row.dump();
  }
}

// Each pair of frames is a picture behind which its time stands.
TEST(TowerPictures, VideosOfGlm) {
  const test::ProcessorNumbers golden("towers");
  VideoFrames video{{}, {0, 25, 50}, 25, 1};
  for (size_t i = 0; i < 3; ++i) video.frames.push_back(golden.image("picture/0"));
  const std::string one = "<|begin_of_image|><|image|><|end_of_image|>";
  for (const auto& [type, first, second] : {std::tuple{"glm4v", "0", "2"}, {"glm46v", "0.0 seconds", "2.0 seconds"}}) {
    const PreparedMedia made = tower_processor(type, golden.json["glm4v"], {{"image_token_id", 7}})->video(video);
    EXPECT_EQ(made.text, "<|begin_of_video|>" + one + first + one + second + "<|end_of_video|>");
    ASSERT_EQ(made.runs.size(), 2u);
    EXPECT_EQ(made.content->grid[0], 2);
    EXPECT_EQ(made.runs[0],
              std::vector<int32_t>(static_cast<size_t>(made.content->grid[1] * made.content->grid[2] / 4), 7));
  }
}

TEST(TowerPictures, VideosOfSmolVlm) {
  const test::ProcessorNumbers golden("towers");
  for (const Json& row : golden.json["frames/smolvlm"])
    EXPECT_EQ(smol_frames(row[0].get<int64_t>(), row[1].get<double>(), 1, 64), row[2].get<std::vector<int64_t>>());
  for (const Json& row : golden.json["text/smolvlm"]) {
    const VideoFrames video{{row[0].size(), Image()}, row[0].get<std::vector<int64_t>>(), row[1].get<double>(), 1};
    std::string text = smol_intro(video);
    for (size_t i = 0; i < video.frames.size(); ++i) text += "\nFrame from " + smol_time(video, i) + ":<image>";
    EXPECT_EQ(text + "\n\n", row[2].get<std::string>());
  }
  Json config = tower_of(16, 4);
  config["scale_factor"] = 2;
  const Json file = {{"max_image_size", {{"longest_edge", 16}}},
                     {"video_sampling", {{"fps", 1}, {"max_frames", 64}, {"video_size", {{"longest_edge", 48}}}}}};
  const Image first = golden.image("picture/0");
  Image second = first;
  for (int64_t y = 0; y < first.height; ++y)  // its columns the other way round
    for (int64_t x = 0; x < first.width; ++x)
      std::copy_n(first.rgb.begin() + (y * first.width + x) * 3, 3,
                  second.rgb.begin() + (y * first.width + first.width - 1 - x) * 3);
  const VideoFrames video{{first, second}, {0, 25}, 25, 1};
  const PreparedMedia made = tower_processor("smolvlm", file, config)->video(video);
  EXPECT_EQ(made.content->shape, golden.shape("smolvlm_video"));
  golden.expect_near("smolvlm_video", made.content->values, kFramePixels);
  ASSERT_EQ(made.runs.size(), 2u);
  EXPECT_EQ(made.runs[0].size(), 1u + 4 + 1) << "its mark, four cells, the mark behind it";
  const auto refusal = test::refusal(Fault::Data, [&] {
    tower_processor("idefics3", file, config)->video({{first}, {0}, 25, 1});
  });
  test::expect_says(refusal, "sees no videos");
}

// A frame is what a picture's first square is: all of it.
TEST(TowerPictures, VideosOfLlavaOneVision) {
  const test::ProcessorNumbers golden("towers");
  Json config = tower_of(24, 8);
  config["image_grid_pinpoints"] = {{24, 48}, {48, 24}};
  config["video_token_index"] = 9;
  const auto processor = tower_processor("llava_onevision", Json::object(), config);
  const Image frame = golden.image("picture/0");
  const PreparedMedia made = processor->video({{frame, frame}, {0, 25}, 25, 1});
  const std::vector<float> square = processor->image(frame).content->values;
  EXPECT_EQ(made.content->shape, (std::vector<int64_t>{2, 3, 24, 24}));
  for (size_t i = 0; i < made.content->values.size(); ++i)
    ASSERT_EQ(made.content->values[i], square[i % (3 * 24 * 24)]) << i;
  // Three cells a side become two, and a row ends the whole.
  EXPECT_EQ(made.runs[0], std::vector<int32_t>(2 * 2 * 2 + 1, 9));
  EXPECT_EQ(processor->chosen_frames(320, 25).size(), 32u);
  config["vision_aspect_ratio"] = "anyres_max_9";
  const auto refusal = test::refusal(Fault::Data, [&] {
    tower_processor("llava_next", Json::object(), config)->video({{frame}, {0}, 25, 1});
  });
  test::expect_says(refusal, "sees no videos");
}

TEST(TowerPictures, PatchesAndSamplesOfGemma4Unified) {
  const test::ProcessorNumbers golden("towers");
  const Json config = {
      {"image_token_id", 7}, {"video_token_id", 8}, {"audio_token_id", 9}, {"audio_config", {{"audio_embed_dim", 4}}}};
  const auto processor = tower_processor("gemma4_unified", golden.json["gemma4_unified"], config);
  for (const char* number : {"0", "1"}) {
    const std::string name = std::string("gemma4_unified/") + number;
    const PreparedMedia made = processor->image(golden.image(std::string("picture/") + number));
    const auto grid = golden.values<int64_t>(name + "/grid");
    EXPECT_EQ(made.content->grid, (std::array<int64_t, 3>{1, grid[1], grid[2]})) << name;
    golden.expect_near(name, made.content->values, test::kPixels);
    EXPECT_EQ(made.runs[0], std::vector<int32_t>(static_cast<size_t>(grid[1] * grid[2]), 7));
  }
  // Frames of four samples, the last one filled up; a frame is a column.
  const PreparedMedia heard = processor->sound({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(heard.content->shape, (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(heard.content->values, (std::vector<float>{1, 5, 2, 6, 3, 0, 4, 0}));
  EXPECT_EQ(heard.text, "<|audio><|audio|><audio|>");
  EXPECT_EQ(heard.runs[0], std::vector<int32_t>(2, 9));
  const auto deaf = tower_processor("gemma4_unified", Json::object(), {{"image_token_id", 7}, {"video_token_id", 8}});
  test::expect_says(test::refusal(Fault::Data, [&] { deaf->sound({1, 2}); }), "does not hear");
  const Json narrow = {{"image_token_id", 7}, {"video_token_id", 8}, {"text_config", {{"sliding_window", 512}}}};
  test::expect_says(test::refusal(Fault::Model,
                                  [&] {
                                    tower_processor("gemma4_unified", {{"max_soft_tokens", 1120}}, narrow);
                                  }),
                    "a picture may not be larger");
}

// As InternVL's, but for how many.
TEST(TowerPictures, TilesOfSailVl) {
  const test::ProcessorNumbers golden("towers");
  Json config = tower_of(24, 4);
  config["max_dynamic_patch"] = 12;
  const Image picture = golden.image("picture/0");
  const auto tiles = [&](const Json& file) {
    return tower_processor("sailvl", file, config)->image(picture).content->shape[0];
  };
  const auto processor = tower_processor("sailvl", Json::object(), config);
  const PreparedMedia made = processor->image(picture);
  EXPECT_EQ(made.text, "<img><IMG_CONTEXT></img>\n");
  EXPECT_EQ(std::ssize(made.runs[0]), 9 * made.content->shape[0]);
  EXPECT_LE(made.content->shape[0], 10 + 1);
  EXPECT_EQ(tiles({{"max_dynamic_patch", 2}}), 3);
  EXPECT_EQ(tiles({{"max_dynamic_patch", 1}}), 1);
  test::expect_says(test::refusal(Fault::Data, [&] { processor->video({{picture}, {0}, 25, 1}); }), "sees no videos");
  test::expect_says(test::refusal(Fault::Model, [&] { tiles({{"use_msac", true}}); }), "use_msac");
}

TEST(TowerPictures, SquaresOfPhi3Vision) {
  const test::ProcessorNumbers golden("towers");
  Json config = tower_of(16, 4);
  config["image_token_id"] = 7;
  const auto processor = tower_processor("phi3_v", golden.json["phi3_v"], config);
  for (const std::string number : {"0", "1"}) {
    const PreparedMedia made = processor->image(golden.image("picture/" + number));
    EXPECT_EQ(made.content->shape, golden.shape("phi3_v/" + number));
    golden.expect_near("phi3_v/" + number, made.content->values, test::kPixels);
    const auto size = golden.json["phi3_v/" + number + "/size"].get<std::vector<int64_t>>();
    EXPECT_EQ(made.content->came_as, (std::array<int64_t, 2>{size[0], size[1]}));
    const int64_t high = size[0] / 8, wide = size[1] / 8;
    EXPECT_EQ(made.runs[0], std::vector<int32_t>(static_cast<size_t>(high * (wide + 1) + 1 + 2 * 3), 7));
    EXPECT_EQ(made.text, "<|image|><s>\n");
  }
}

TEST(TowerPictures, SquaresOfDeepseekVl2) {
  const test::ProcessorNumbers golden("towers");
  Json config = {{"image_token_id", 7},
                 {"vision_config", {{"width", 16}, {"image_size", 12}, {"patch_size", 4}}},
                 {"projector_config", {{"downsample_ratio", 2}}}};
  config.update(golden.json["deepseek_vl2"]);
  const auto processor = tower_processor("deepseek_vl_v2", Json(), config);
  for (const std::string number : {"0", "1"}) {
    const Image picture = golden.image("picture/" + number);
    const PreparedMedia made = processor->image(picture, 2);
    EXPECT_EQ(made.content->shape, golden.shape("deepseek_vl2/" + number));
    golden.expect_near("deepseek_vl2/" + number, made.content->values, test::kPixels);
    const auto size = golden.json["deepseek_vl2/" + number + "/size"].get<std::vector<int64_t>>();
    EXPECT_EQ(made.content->came_as, (std::array<int64_t, 2>{size[0], size[1]}));
    const int64_t high = size[0] / 6, wide = size[1] / 6;
    EXPECT_EQ(made.runs[0], std::vector<int32_t>(static_cast<size_t>(2 * 3 + 1 + high * (wide + 1)), 7));
    EXPECT_EQ(made.text, "<image>\n");
    const PreparedMedia one_of_three = processor->image(picture, 3);
    EXPECT_EQ(one_of_three.content->shape, (std::vector<int64_t>{2, 3, 12, 12}));
    EXPECT_EQ(one_of_three.runs[0].size(), size_t{2 * 3 + 1 + 2 * 3});
  }
}

TEST(TowerPictures, SquaresThatDoNotFitTheTowerAreRefused) {
  const Json size = {{"size", {{"height", 32}, {"width", 24}}}};
  const auto refusal = test::refusal(Fault::Model, [&] { tower_processor("llava", size, tower_of(24, 8)); });
  test::expect_says(refusal, "24 x 32 pixels, and the tower looks at 24 x 24");
  const auto crops = test::refusal(Fault::Model, [&] {
    tower_processor("gemma3", {{"do_pan_and_scan", true}}, tower_of(24, 8));
  });
  test::expect_says(crops, "do_pan_and_scan");
}

}  // namespace
}  // namespace apus
