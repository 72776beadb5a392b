// SPDX-License-Identifier: Apache-2.0
// What Whisper hears, how it is asked in a language, and where long sounds are cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "media/sound.h"
#include "tests/media/golden_numbers.h"
#include "tests/media/tower_processor.h"
#include "tests/refusal.h"
#include "text/tokenizer.h"

namespace apus {
namespace {

using test::refusal;

// Marks as Whisper's tokenizer has them, in their order.
std::shared_ptr<const Tokenizer> marks() {
  Json added = Json::array();
  int id = 1;
  for (const char* mark : {"<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|yue|>", "<|translate|>",
                           "<|transcribe|>", "<|notimestamps|>"})
    added.push_back({{"id", id++},
                     {"content", mark},
                     {"special", true},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false}});
  const Json all = {{"version", "1.0"},
                    {"added_tokens", added},
                    {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", Json::array()}}}};
  return Tokenizer::from_json(all.dump());
}

std::shared_ptr<const MediaProcessor> whisper(const Tokenizer* tokenizer, int64_t vocab = 51865) {
  const Json config = {
      {"model_type", "whisper"}, {"decoder_start_token_id", 2}, {"vocab_size", vocab}, {"num_mel_bins", 8}};
  return make_media_processor({config, {{"feature_size", 8}}, tokenizer, {}, std::nullopt});
}

// The spectrogram is Qwen2-Audio's, which hears by Whisper's encoder, and goes on to the end of half a minute.
TEST(Whisper, HearsHalfAMinute) {
  const test::ProcessorNumbers golden("towers");
  const std::vector<float> samples = golden.values<float>("qwen2_audio/sound");
  const std::vector<float> known = golden.values<float>("qwen2_audio/mel");
  const PreparedMedia made = whisper(nullptr)->sound(samples);
  ASSERT_EQ(made.content->shape, (std::vector<int64_t>{8, 3000}));
  const size_t frames = known.size() / 8;
  const float softest = *std::min_element(made.content->values.begin(), made.content->values.end());
  for (size_t m = 0; m < 8; ++m) {
    for (size_t f = 0; f < frames; ++f)
      EXPECT_NEAR(made.content->values[m * 3000 + f], known[m * frames + f], 5e-5) << m << " " << f;
    EXPECT_EQ(made.content->values[m * 3000 + 2999], softest);
  }
  EXPECT_EQ(made.text, "<|startoftranscript|>");
  EXPECT_EQ(made.runs, (std::vector<std::vector<int32_t>>{{2}}));
  test::expect_says(refusal(Fault::Data, [] { whisper(nullptr)->sound(std::vector<float>(480001)); }), "cut it");
}

TEST(Whisper, IsAskedInALanguage) {
  const auto tokenizer = marks();
  const auto processor = whisper(tokenizer.get());
  EXPECT_EQ(processor->transcription("de").begin, "<|de|><|transcribe|><|notimestamps|>");
  const Transcription unknown = processor->transcription("");
  EXPECT_EQ(unknown.seconds, 30);
  EXPECT_EQ(unknown.languages, (std::vector<std::pair<int32_t, std::string>>{{3, "en"}, {4, "de"}, {5, "yue"}}));
  test::expect_says(refusal(Fault::Data, [&] { processor->transcription("xx"); }), "en, de, yue");
  const auto english = whisper(tokenizer.get(), 51864);
  EXPECT_EQ(english->transcription("").begin, "<|notimestamps|>");
  EXPECT_TRUE(english->transcription("en").languages.empty());
  test::expect_says(refusal(Fault::Data, [&] { english->transcription("de"); }), "English alone");
}

TEST(CutWhereQuiet, BetweenSentences) {
  std::vector<float> samples(5 * kSoundRate);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = std::sin(static_cast<float>(i) * 0.3F);
  std::fill_n(samples.begin() + 27 * kSoundRate / 10, kSoundRate / 4, 0.0F);  // at 2.7 s
  const auto pieces = cut_where_quiet(samples, 3 * kSoundRate);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_NEAR(static_cast<double>(pieces[0].size()) / kSoundRate, 2.825, 0.03);
  EXPECT_EQ(pieces[0].size() + pieces[1].size(), samples.size());
  EXPECT_EQ(cut_where_quiet(samples, 5 * kSoundRate).size(), 1u);
  EXPECT_EQ(cut_where_quiet({}, 100).size(), 1u);
  for (const auto& piece : cut_where_quiet(samples, kSoundRate)) EXPECT_LE(std::ssize(piece), kSoundRate);
}

}  // namespace
}  // namespace apus
