// SPDX-License-Identifier: Apache-2.0
// Speaks what a model has answered: the talker's frames of codes, one by one, and the sound made of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/answer/text_voice.h"
#include "models/speech/sound_maker.h"
#include "models/speech/talker.h"

namespace apus {

class Speaker {
 public:
  // `options`: type and device of the talker's cache. All must outlive it.
  Speaker(const Talker& talker, const SoundMaker& vocoder, at::TensorOptions options);
  std::vector<std::string> voices() const;
  // What the talker reads: made where the model that answers may be run. No rows: nothing was answered.
  TalkerPrompt prompt(const Model& model, const SpokenText& text, const std::string& voice) const;
  // Where no model answers. The prompt: instructions, or nothing.
  TalkerPrompt prompt(const SpokenText& text, const VoiceWish& wish) const;
  // How this model's codes are usually drawn.
  VoiceWish usual() const;
  // int64 [frames, codes], on the processor. Ends early when `stopped` says so.
  // `told`: after each frame, with all codes so far.
  using Told = std::function<void(const std::vector<int64_t>& code)>;
  at::Tensor frames(const TalkerPrompt& prompt, const VoiceWish& wish, const std::function<bool()>& stopped = {},
                    const Told& told = {}) const;
  // At kSpeechRate, in [-1, 1].
  std::vector<float> sound(const at::Tensor& code_FG, const VoiceWish& wish = {}) const;
  // Frames and their sound, in pieces of kPiece frames as soon as they are there.
  void speak_on(const TalkerPrompt& prompt, const VoiceWish& wish, const std::function<bool()>& stopped,
                const std::function<void(std::vector<float>)>& heard) const;
  static constexpr int64_t kPiece = 16;

 private:
  // Of frames from the begin-th on, with those before them.
  std::vector<float> sound_behind(const at::Tensor& code_FG, int64_t begin, const VoiceWish& wish) const;
  void watch(const Model& model, const SpokenText& text, Spoken& what) const;
  int32_t first_of_frame(const at::Tensor& hidden_1D, const VoiceWish& wish, const std::vector<int32_t>& before) const;

  const Talker& talker_;
  const SoundMaker& vocoder_;
  const at::TensorOptions options_;
};

}  // namespace apus
