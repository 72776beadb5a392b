// SPDX-License-Identifier: Apache-2.0
// Sounds as processors of further families make them, against transformers' own, and the tokens that stand for them.
#include <gtest/gtest.h>

#include "media/processor.h"
#include "tests/media/golden_numbers.h"
#include "tests/media/tower_processor.h"
#include "tests/refusal.h"

namespace apus {
namespace {

using test::tower_processor;

TEST(TowerSounds, OfQwen3Asr) {
  const test::ProcessorNumbers golden("towers");
  const Json config = {{"audio_token_id", 7}, {"audio_config", {{"num_mel_bins", 8}}}};
  const auto processor = tower_processor("qwen3_asr", {{"feature_size", 8}}, config);
  const std::vector<float> one = golden.values<float>("qwen2_audio/sound");
  std::vector<float> four;
  for (int i = 0; i < 4; ++i) four.insert(four.end(), one.begin(), one.end());
  for (const auto& [name, samples] : {std::pair{"qwen3_asr/short", one}, {"qwen3_asr/long", four}}) {
    const PreparedMedia made = processor->sound(samples);
    EXPECT_EQ(made.content->shape, golden.shape(name)) << name;
    golden.expect_near(name, made.content->values, 5e-5);
    EXPECT_EQ(made.runs[0], std::vector<int32_t>(golden.json[name].get<size_t>(), 7)) << name;
    EXPECT_EQ(made.text, "<|audio_start|><|audio_pad|><|audio_end|>");
  }
}

TEST(TowerSounds, OfQwen2Audio) {
  const test::ProcessorNumbers golden("towers");
  const Json config = {{"audio_token_index", 7},
                       {"audio_config", {{"num_mel_bins", 8}, {"max_source_positions", 1500}}}};
  const auto processor = tower_processor("qwen2_audio", {{"feature_size", 8}}, config);
  const PreparedMedia made = processor->sound(golden.values<float>("qwen2_audio/sound"));
  EXPECT_EQ(made.content->shape, golden.shape("qwen2_audio/mel"));
  golden.expect_near("qwen2_audio/mel", made.content->values, 5e-5);
  EXPECT_EQ(made.runs[0], std::vector<int32_t>(golden.json["qwen2_audio"]["tokens"].get<size_t>(), 7));
  EXPECT_EQ(processor->counted(made.text, 1), "Audio 2: <|audio_bos|><|AUDIO|><|audio_eos|>\n");
  // Of a longer sound than half a minute the rest is not heard; behind its end there is nothing.
  const PreparedMedia long_one = processor->sound(std::vector<float>(31 * 16000, 0.1F));
  EXPECT_EQ(long_one.content->shape, (std::vector<int64_t>{8, 3002}));
  EXPECT_EQ(long_one.content->values[3001], 0);
  EXPECT_EQ(long_one.runs[0].size(), 750u);
  const auto refusal = test::refusal(Fault::Data, [&] { processor->image(golden.image("picture/0")); });
  test::expect_says(refusal, "does not see images");
}

// Half a minute at most, and as many tokens however short it is.
TEST(TowerSounds, OfGemma3n) {
  const test::ProcessorNumbers golden("towers");
  const Json config = {{"audio_token_id", 7}, {"boa_token_id", 8}, {"eoa_token_id", 9}};
  const auto processor = tower_processor("gemma3n", {{"feature_size", 8}}, config);
  const PreparedMedia made = processor->sound(golden.values<float>("qwen2_audio/sound"));
  EXPECT_EQ(made.content->shape, golden.shape("gemma3n/mel"));
  golden.expect_near("gemma3n/mel", made.content->values, 1e-4);
  ASSERT_EQ(made.runs[0].size(), 1 + 188 + 1u);
  EXPECT_EQ(made.runs[0][0], 8);
  EXPECT_EQ(made.runs[0][1], 7);
  EXPECT_EQ(made.runs[0].back(), 9);
  EXPECT_EQ(made.text, "<audio_soft_token>");
  const PreparedMedia long_one = processor->sound(std::vector<float>(31 * 16000, 0.1F));
  EXPECT_EQ(long_one.content->shape, (std::vector<int64_t>{8, 2997}));
  EXPECT_EQ(long_one.runs[0].size(), 190u);
  test::expect_says(test::refusal(Fault::Data, [&] { processor->sound(std::vector<float>(500)); }), "too short");
  test::expect_says(test::refusal(Fault::Model,
                                  [&] {
                                    tower_processor("gemma3n", {{"dither", 0.1}}, config);
                                  }),
                    "preprocessor_config.json: dither 0.1 is not supported");
}

// Filled up with silence to whole pieces of half a minute, which stand one behind the other.
TEST(TowerSounds, OfVoxtral) {
  const test::ProcessorNumbers golden("towers");
  const Json config = {{"audio_token_id", 7}, {"audio_config", {{"num_mel_bins", 8}}}};
  const auto processor = tower_processor("voxtral", {{"feature_size", 8}}, config);
  const std::vector<float> one = golden.values<float>("qwen2_audio/sound");
  const PreparedMedia made = processor->sound(one);
  EXPECT_EQ(made.content->shape, (std::vector<int64_t>{8, 3000}));
  // The last frames of the first piece, and all of the second, hear nothing, and are kept as one.
  const auto count = golden.shape("voxtral/heard")[1];
  std::vector<float> heard;
  for (int64_t m = 0; m < 8; ++m)
    heard.insert(heard.end(), made.content->values.begin() + m * 3000, made.content->values.begin() + m * 3000 + count);
  golden.expect_near("voxtral/heard", heard, 5e-5);
  for (int64_t t = count; t < 3000; ++t) EXPECT_NEAR(made.content->values[t], golden.json["voxtral/silence"], 5e-5);
  EXPECT_EQ(made.runs[0], std::vector<int32_t>(375, 7));
  EXPECT_EQ(made.text, "[BEGIN_AUDIO][AUDIO]");
  // Of 30.1 seconds: two pieces, whose frames where they meet hear both.
  std::vector<float> longer;
  for (int i = 0; std::ssize(longer) < 481600; ++i) longer.push_back(one[static_cast<size_t>(i) % one.size()]);
  const PreparedMedia two = processor->sound(longer);
  EXPECT_EQ(two.content->shape, (std::vector<int64_t>{8, 6000}));
  EXPECT_EQ(two.runs[0].size(), 750u);
  std::vector<float> meeting;
  for (int64_t m = 0; m < 8; ++m)
    meeting.insert(meeting.end(), two.content->values.begin() + m * 6000 + 2990,
                   two.content->values.begin() + m * 6000 + 3020);
  golden.expect_near("voxtral/meeting", meeting, 5e-5);
  EXPECT_EQ(processor->transcription("fr").begin, "lang:fr[TRANSCRIBE]");
  EXPECT_EQ(processor->transcription("").begin, "[TRANSCRIBE]");
  test::expect_says(test::refusal(Fault::Data, [&] { processor->transcription("[AUDIO]"); }), "two letters");
}

}  // namespace
}  // namespace apus
