// SPDX-License-Identifier: Apache-2.0
// Whisper: half a minute, filled up with silence. The token that begins a text stands for it.
#include <algorithm>

#include "base/error.h"
#include "base/nearest.h"
#include "media/ears.h"
#include "media/sound.h"
#include "text/tokenizer.h"

namespace apus {

namespace {
constexpr const char* kBegin = "<|startoftranscript|>";
constexpr const char* kTask = "<|transcribe|><|notimestamps|>";
constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyz";
constexpr int64_t kEnglishWords = 51864;

class WhisperProcessor final : public EarsProcessor {
 public:
  explicit WhisperProcessor(const MediaCheckpoint& c)
      : EarsProcessor(c.max_pixels),
        token_(c.token(kBegin, "decoder_start_token_id")),
        mels_(c.preprocessor.is_object() ? c.preprocessor.value("feature_size", bands(c)) : bands(c)),
        most_(2 * positions(c)) {
    // Models of English alone know the marks of languages too, and were never taught them.
    const bool english_alone = c.config.is_object() && c.config.value("vocab_size", int64_t{0}) == kEnglishWords;
    for (int32_t id = token_ + 1; c.tokenizer && !english_alone; ++id) {  // they follow the one that begins
      const std::string mark = c.tokenizer->piece(id), code = mark.size() > 4 ? mark.substr(2, mark.size() - 4) : "";
      if (mark != "<|" + code + "|>" || code.size() > 3 || code.find_first_not_of(kLetters) != std::string::npos) break;
      languages_.emplace_back(id, code);
    }
  }

  PreparedMedia sound(const std::vector<float>& samples) const override {
    const int64_t hop = kSoundRate / 100, all = most_ * hop;
    require(!samples.empty(), Fault::Data, "a sound without samples");
    require(std::ssize(samples) <= all, Fault::Data, "a sound of ", std::ssize(samples) / kSoundRate,
            " seconds; this model hears ", all / kSoundRate, " at a time: cut it");
    std::vector<float> filled = samples;
    filled.resize(static_cast<size_t>(all));
    auto content = std::make_shared<MediaContent>();
    content->type = MediaType::Audio;
    int64_t frames = 0;
    content->values = log_mel(filled, mels_, all, frames);
    content->shape = {mels_, frames};
    content->digest = content_digest(*content, "mel", {});
    return {content, kBegin, token_, {{token_}}};
  }
  // As it was trained: the language, the task, and that no times are wanted stand before the answer.
  Transcription transcription(const std::string& language) const override {
    Transcription out{.ask = "", .hints_are_system = true, .begin = "<|notimestamps|>", .seconds = most_ / 100};
    if (languages_.empty()) {
      require(language.empty() || language == "en", Fault::Data, "'", language.substr(0, 32),
              "': this model hears English alone");
      return out;
    }
    if (language.empty()) {
      out.languages = languages_, out.begin = "";
      return out;
    }
    std::vector<std::string> codes;
    for (const auto& [id, code] : languages_) codes.push_back(code);
    require(std::find(codes.begin(), codes.end(), language) != codes.end(), Fault::Data, "'", language.substr(0, 32),
            "' is no language that this model writes down; it knows ", join(codes));
    out.begin = "<|" + language + "|>" + kTask;
    return out;
  }
  std::vector<int32_t> media_tokens() const override { return {token_}; }

 private:
  static int64_t bands(const MediaCheckpoint& c) {
    return c.config.is_object() ? c.config.value("num_mel_bins", int64_t{80}) : 80;
  }
  static int64_t positions(const MediaCheckpoint& c) {
    const int64_t said = c.config.is_object() ? c.config.value("max_source_positions", int64_t{1500}) : 1500;
    require(said > 0 && said <= 1 << 16, Fault::Model, "config.json: max_source_positions is ", said);
    return said;
  }

  const int32_t token_;
  const int64_t mels_, most_;  // most: frames of 10 ms
  std::vector<std::pair<int32_t, std::string>> languages_;
};

const RegisterMediaFamily whisper({"whisper"},
                                  [](const MediaCheckpoint& c) { return std::make_shared<WhisperProcessor>(c); });

}  // namespace
}  // namespace apus
