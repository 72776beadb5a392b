// SPDX-License-Identifier: Apache-2.0
// The speaking parts of a checkpoint: talker and vocoder.
#pragma once

#include <filesystem>
#include <memory>

#include "checkpoint/weights.h"
#include "models/speech/flow_vocoder.h"
#include "models/speech/talker.h"
#include "models/speech/vocoder.h"
#include "models/speech/voice_reader.h"

namespace apus {

struct SpeakingParts {
  std::shared_ptr<const SpeechSpec> spec;
  std::unique_ptr<Talker> talker;
  std::unique_ptr<SoundMaker> vocoder;  // in f32
  std::unique_ptr<VoiceReader> reader;  // in f32; null: the voices are the model's own
};
// Fault::Model where the checkpoint does not speak.
SpeakingParts load_speech(const std::filesystem::path& dir, at::ScalarType dtype, c10::Device device);

// In f32, on the processor: not every device has convolutions, and it is quick enough.
void load_vocoder(Vocoder& vocoder, const TensorFolder& source);

}  // namespace apus
