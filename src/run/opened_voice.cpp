// SPDX-License-Identifier: Apache-2.0
#include "run/opened_voice.h"

#include "base/log.h"
#include "base/nearest.h"
#include "checkpoint/load_speech.h"
#include "engine/speaker.h"
#include "models/spec/speech_spec.h"

namespace apus {

namespace {
class OpenedVoice final : public TextVoice {
 public:
  OpenedVoice(SpeakingParts speech, Engine& engine, at::TensorOptions options)
      : speech_(std::move(speech)), engine_(engine), speaker_(*speech_.talker, *speech_.vocoder, options) {}
  std::vector<std::string> voices() const override { return speaker_.voices(); }
  void check_voice(const std::string& voice) const override { voice_word(*speech_.spec, voice); }
  std::vector<float> speak(const SpokenText& text, const VoiceWish& wish,
                           const std::function<bool()>& stopped) override {
    TalkerPrompt prompt;
    engine_.use_model([&](const Model& model) { prompt = speaker_.prompt(model, text, wish.voice); });
    const std::lock_guard one_at_a_time(mutex_);
    return speaker_.sound(speaker_.frames(prompt, wish, stopped));
  }

 private:
  const SpeakingParts speech_;
  Engine& engine_;
  const Speaker speaker_;
  std::mutex mutex_;
};
}  // namespace

std::unique_ptr<TextVoice> open_voice(const ModelOptions& model, const RankOptions& mesh, Inference& in) {
  require(in.engine && !in.loaded.spread && mesh.ranks_of_copy() == 1, Fault::Usage,
          "answers are spoken where the model lies on one device: leave out --device_map and parallel sizes, or "
          "--enable_audio_output");
  SpeakingParts speech = load_speech(model.model, in.loaded.dtype, in.loaded.device.device);
  auto voice = std::make_unique<OpenedVoice>(std::move(speech), *in.engine, in.loaded.options());
  log_info("answers can be spoken, by the voices ", join(voice->voices()));
  return voice;
}

}  // namespace apus
