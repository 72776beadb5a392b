// SPDX-License-Identifier: Apache-2.0
// Sound from the codes of Qwen2.5-Omni: a flow makes mel of them in the manner of a voice's sample, convolutions make
// sound of it.
#pragma once

#include <map>

#include "models/speech/flow.h"
#include "models/speech/sound_maker.h"

namespace apus {

// What a checkpoint keeps of a voice, in f32.
struct VoiceSample {
  at::Tensor own_V, mel_TM;
};

class FlowVocoder final : public SoundMaker {
 public:
  explicit FlowVocoder(const FlowVocoderSpec& spec);
  TowerParts& flow_parts() { return flow_.parts(); }
  // Of the convolutions, which belong on the processor.
  TowerParts& manner_parts() { return manner_parts_; }
  TowerParts& wave_parts() { return wave_parts_; }
  // Once the weights are in. Names are in small letters.
  void learn_voices(const std::map<std::string, VoiceSample>& samples);

  // "": the first of the voices.
  at::Tensor sound(const at::Tensor& code_FG, const SoundWish& wish) const override;
  int64_t samples_per_frame() const override;
  // Both steps: mel from noise [frames * repeats, bands], and sound from mel.
  at::Tensor mel(const at::Tensor& code_FG, const std::string& voice, const at::Tensor& noise_TM) const;
  at::Tensor wave(const at::Tensor& mel_TM) const;

 private:
  const FlowVocoderSpec& spec_;
  Flow flow_;
  TowerParts manner_parts_, wave_parts_;
  std::map<std::string, Flow::Voice> voices_;
};

}  // namespace apus
