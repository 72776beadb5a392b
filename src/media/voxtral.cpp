// SPDX-License-Identifier: Apache-2.0
// Voxtral: a sound of any length, filled up with silence to whole half minutes, of which each is heard for itself.
#include <algorithm>

#include "media/ears.h"
#include "media/sound.h"

namespace apus {

namespace {

class VoxtralProcessor final : public EarsProcessor {
 public:
  explicit VoxtralProcessor(const MediaCheckpoint& c)
      : EarsProcessor(c.max_pixels),
        token_(c.token("[AUDIO]", "audio_token_id")),
        mels_(c.whole("feature_size", "audio_config", "num_mel_bins", 128)),
        piece_(2 * c.whole("nb_max_positions", "audio_config", "max_source_positions", 1500)),
        beside_(beside(c)) {}

  PreparedMedia sound(const std::vector<float>& samples) const override {
    constexpr int64_t kHop = kSoundRate / 100, kSilent = 3;
    require(!samples.empty(), Fault::Data, "a sound without samples");
    const int64_t filled = piece_ * kHop, count = std::ssize(samples);
    const int64_t pieces = (count + filled - 1) / filled, all = pieces * piece_;
    // The third frame behind the end hears nothing; those that follow are as it is.
    std::vector<float> heard = samples;
    heard.resize(static_cast<size_t>(std::min(all * kHop, (count + kHop - 1) / kHop * kHop + kSilent * kHop)));
    int64_t frames = 0;
    const std::vector<float> spectrum = log_mel(heard, mels_, all * kHop, frames);
    auto content = std::make_shared<MediaContent>();
    content->type = MediaType::Audio;
    content->shape = {mels_, all};
    content->values.resize(static_cast<size_t>(mels_ * all));
    for (int64_t m = 0; m < mels_; ++m) {
      const auto from = spectrum.begin() + m * frames;
      const auto to = content->values.begin() + m * all;
      std::copy_n(from, frames, to);
      std::fill(to + frames, to + all, from[frames - 1]);
    }
    content->digest = content_digest(*content, "mel", {});
    PreparedMedia out{content, "[BEGIN_AUDIO][AUDIO]", token_, {}};
    out.runs.emplace_back(static_cast<size_t>(all / 2 / beside_), token_);
    return out;
  }
  // As it was trained: the answer begins behind a mark, before which stands the language where it is known.
  Transcription transcription(const std::string& language) const override {
    const bool code = language.size() == 2 &&
                      std::all_of(language.begin(), language.end(), [](char c) { return c >= 'a' && c <= 'z'; });
    require(code || language.empty(), Fault::Data, "'", language.substr(0, 32),
            "' is no code of a language in two letters (ISO 639-1: en, fr, de)");
    return {.ask = "", .begin = (language.empty() ? "" : "lang:" + language) + "[TRANSCRIBE]"};
  }
  std::vector<int32_t> media_tokens() const override { return {token_}; }

 private:
  // Rows of the encoder that become one token.
  static int64_t beside(const MediaCheckpoint& c) {
    const Json said = c.config.is_object() ? c.config.value("audio_config", Json::object()) : Json::object();
    const auto size = [&](const char* usual, const char* own, int64_t otherwise) {
      return said.value(usual, said.value(own, otherwise));
    };
    const int64_t width = size("hidden_size", "d_model", 1280),
                  ffn = size("intermediate_size", "encoder_ffn_dim", 5120);
    require(width > 0 && ffn >= width, Fault::Model, "config.json: audio_config: hidden_size ", width,
            " and intermediate_size ", ffn, " do not fit together");
    return ffn / width;
  }

  const int32_t token_;
  const int64_t mels_, piece_, beside_;
};

const RegisterMediaFamily voxtral({"voxtral"},
                                  [](const MediaCheckpoint& c) { return std::make_shared<VoxtralProcessor>(c); });

}  // namespace
}  // namespace apus
