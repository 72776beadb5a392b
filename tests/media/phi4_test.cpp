// SPDX-License-Identifier: Apache-2.0
// Pictures and sounds as Phi-4-multimodal's processors make them, against transformers' own, and the tokens that stand
// for them.
#include <gtest/gtest.h>

#include "media/processor.h"
#include "tests/media/golden_numbers.h"
#include "tests/media/tower_processor.h"
#include "tests/refusal.h"

namespace apus {
namespace {

using test::tower_processor;

Json phi4_config() { return {{"vision_config", {{"image_token_id", 7}}}, {"audio_config", {{"audio_token_id", 9}}}}; }

TEST(Phi4Media, SquaresAreTransformers) {
  const test::ProcessorNumbers golden("towers");
  Json config = phi4_config();
  for (const auto& [type, number] : {std::pair{"phi4_multimodal", "0"}, {"phi4_multimodal", "1"}, {"phi4mm", "1"}}) {
    const std::string name = std::string(type) + "/" + number;
    const auto processor = tower_processor(type, golden.json["phi4"], config);
    const PreparedMedia made = processor->image(golden.image(std::string("picture/") + number));
    EXPECT_EQ(made.content->shape, golden.shape(name)) << name;
    golden.expect_near(name, made.content->values, test::kPixels);
    const auto size = golden.json[name + "/size"].get<std::vector<int64_t>>();
    EXPECT_EQ(made.content->came_as, (std::array<int64_t, 2>{size[0], size[1]})) << name;
    EXPECT_EQ(made.runs[0], std::vector<int32_t>(golden.json[name + "/tokens"].get<size_t>(), 7)) << name;
    EXPECT_EQ(made.text, "<|endoftext10|>");
    EXPECT_FALSE(made.with_others);
  }
  const auto usual = tower_processor("phi4_multimodal", Json(), config);
  for (const auto& of : golden.json["sizes/phi4"])
    EXPECT_EQ(usual->seen_size({of[1].get<int64_t>(), of[0].get<int64_t>()}),
              (ImageSize{of[3].get<int64_t>(), of[2].get<int64_t>()}))
        << of;
  const Image thin{600, 4, std::vector<uint8_t>(600 * 4 * 3, 9)};
  test::expect_says(test::refusal(Fault::Data, [&] { usual->image(thin); }), "too narrow");
  const Json wide = {{"size", {{"height", 24}, {"width", 32}}}};
  test::expect_says(test::refusal(Fault::Model, [&] { tower_processor("phi4mm", wide, config); }), "is no square");
}

TEST(Phi4Media, SoundsAreTransformers) {
  const test::ProcessorNumbers golden("towers");
  const auto processor = tower_processor("phi4_multimodal", {{"feature_size", 8}}, phi4_config());
  const PreparedMedia made = processor->sound(golden.values<float>("qwen2_audio/sound"));
  EXPECT_EQ(made.content->shape, golden.shape("phi4/mel"));
  golden.expect_near("phi4/mel", made.content->values, 1e-4);
  EXPECT_EQ(made.runs[0], std::vector<int32_t>(golden.json["phi4/tokens"].get<size_t>(), 9));
  EXPECT_EQ(made.text, "<|endoftext11|>");
  EXPECT_TRUE(made.with_others);
  EXPECT_EQ(processor->media_tokens(), (std::vector<int32_t>{7, 9}));
  test::expect_says(test::refusal(Fault::Data, [&] { processor->sound(std::vector<float>(399)); }), "too short");
  const Json other = {{"audio_compression_rate", 4}};
  test::expect_says(test::refusal(Fault::Model, [&] { tower_processor("phi4mm", other, phi4_config()); }),
                    "audio_compression_rate 4 is not supported");
}

}  // namespace
}  // namespace apus
