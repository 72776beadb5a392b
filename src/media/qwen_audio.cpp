// SPDX-License-Identifier: Apache-2.0
// Qwen2-Audio: a sound of half a minute at most, whose spectrogram goes on into the silence behind it.
#include <algorithm>

#include "media/ears.h"
#include "media/sound.h"

namespace apus {

namespace {

class QwenAudioProcessor final : public EarsProcessor {
 public:
  explicit QwenAudioProcessor(const MediaCheckpoint& c)
      : EarsProcessor(c.max_pixels),
        token_(c.token("<|AUDIO|>", "audio_token_index")),
        mels_(c.whole("feature_size", "audio_config", "num_mel_bins", 128)),
        most_(2 * c.whole("nb_max_positions", "audio_config", "max_source_positions", 1500)) {}

  // What comes behind its end is heard at the end, by two convolutions.
  PreparedMedia sound(const std::vector<float>& samples) const override {
    constexpr int64_t kHop = kSoundRate / 100, kTail = 2;
    const int64_t most = most_ * kHop, count = std::min<int64_t>(std::ssize(samples), most);
    const int64_t heard = (count + kHop - 1) / kHop;
    require(heard >= kTail, Fault::Data, "a sound of ", count, " samples is too short to be heard");
    std::vector<float> padded(samples.begin(), samples.begin() + count);
    padded.resize(static_cast<size_t>(std::min(count + kTail * kHop, most)));
    int64_t frames = 0;
    const std::vector<float> spectrum = log_mel(padded, mels_, most, frames);
    auto content = std::make_shared<MediaContent>();
    content->type = MediaType::Audio;
    content->shape = {mels_, heard + kTail};
    content->values.resize(static_cast<size_t>(mels_ * (heard + kTail)));
    for (int64_t m = 0; m < mels_; ++m)
      std::copy_n(spectrum.begin() + m * frames, std::min(frames, heard + kTail),
                  content->values.begin() + m * (heard + kTail));
    content->digest = content_digest(*content, "mel", {});
    PreparedMedia out{content, "<|audio_bos|><|AUDIO|><|audio_eos|>", token_, {}};
    out.runs.emplace_back(static_cast<size_t>((heard + 1) / 2 / 2), token_);
    return out;
  }
  std::string counted(const std::string& text, size_t number) const override {
    return str("Audio ", number + 1, ": ", text, "\n");
  }
  std::vector<int32_t> media_tokens() const override { return {token_}; }

 private:
  int32_t token_;
  int64_t mels_, most_;
};

const RegisterMediaFamily qwen2_audio({"qwen2_audio"},
                                      [](const MediaCheckpoint& c) { return std::make_shared<QwenAudioProcessor>(c); });

}  // namespace
}  // namespace apus
