// SPDX-License-Identifier: Apache-2.0
// Qwen3-ASR: a sound of any length in whole frames of 10 ms; silence is put behind one of less than half a second.
#include <algorithm>

#include "base/nearest.h"
#include "media/ears.h"
#include "media/sound.h"

namespace apus {

namespace {

struct Language {
  const char *code, *name;
};
constexpr Language kLanguages[] = {
    {"ar", "Arabic"},  {"yue", "Cantonese"}, {"zh", "Chinese"},    {"cs", "Czech"},      {"da", "Danish"},
    {"nl", "Dutch"},   {"en", "English"},    {"fil", "Filipino"},  {"fi", "Finnish"},    {"fr", "French"},
    {"de", "German"},  {"el", "Greek"},      {"hi", "Hindi"},      {"hu", "Hungarian"},  {"id", "Indonesian"},
    {"it", "Italian"}, {"ja", "Japanese"},   {"ko", "Korean"},     {"mk", "Macedonian"}, {"ms", "Malay"},
    {"fa", "Persian"}, {"pl", "Polish"},     {"pt", "Portuguese"}, {"ro", "Romanian"},   {"ru", "Russian"},
    {"es", "Spanish"}, {"sv", "Swedish"},    {"th", "Thai"},       {"tr", "Turkish"},    {"vi", "Vietnamese"}};

std::string language_name(const std::string& language) {
  std::vector<std::string> codes;
  for (const Language& each : kLanguages) {
    if (language == each.code || language == each.name) return each.name;
    codes.push_back(each.code);
  }
  fail(Fault::Data, "'", language.substr(0, 32), "' is no language that this model writes down; it knows ",
       join(codes));
}

class QwenAsrProcessor final : public EarsProcessor {
 public:
  explicit QwenAsrProcessor(const MediaCheckpoint& c)
      : EarsProcessor(c.max_pixels),
        token_(c.token("<|audio_pad|>", "audio_token_id")),
        least_(c.preprocessor.is_object() ? c.preprocessor.value("min_length", kSoundRate / 2) : kSoundRate / 2),
        mels_(c.whole("feature_size", "audio_config", "num_mel_bins", 128)),
        chunk_(2 * c.whole("n_window", "audio_config", "n_window", 50)) {
    require(least_ >= 0 && least_ <= kLongestSound * kSoundRate, Fault::Model,
            "preprocessor_config.json: min_length is ", least_);
  }

  PreparedMedia sound(const std::vector<float>& samples) const override {
    std::vector<float> heard = samples;
    heard.resize(static_cast<size_t>(std::max(std::ssize(samples), least_)));
    auto content = std::make_shared<MediaContent>();
    content->type = MediaType::Audio;
    int64_t frames = 0;
    content->values = log_mel(heard, mels_, 0, frames);
    content->shape = {mels_, frames};
    content->digest = content_digest(*content, "mel", {});
    PreparedMedia out{content, "<|audio_start|><|audio_pad|><|audio_end|>", token_, {}};
    out.runs.emplace_back(static_cast<size_t>(rows_of_frames(frames, chunk_)), token_);
    return out;
  }
  // As it was trained: the answer begins with the language.
  Transcription transcription(const std::string& language) const override {
    Transcription out{.ask = "", .hints_are_system = true, .mark = "<asr_text>"};
    if (!language.empty()) out.begin = "language " + language_name(language) + out.mark;
    return out;
  }
  std::vector<int32_t> media_tokens() const override { return {token_}; }

 private:
  const int32_t token_;
  const int64_t least_;  // samples
  const int64_t mels_, chunk_;
};

const RegisterMediaFamily qwen3_asr({"qwen3_asr"},
                                    [](const MediaCheckpoint& c) { return std::make_shared<QwenAsrProcessor>(c); });

}  // namespace
}  // namespace apus
