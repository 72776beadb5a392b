// SPDX-License-Identifier: Apache-2.0
// The voice of a checkpoint that speaks, beside the engine that makes its answers.
#pragma once

#include <memory>
#include <mutex>

#include "cli/speech_options.h"
#include "engine/answer/text_voice.h"
#include "run/inference.h"

namespace apus {

// Reads the checkpoint's talker and vocoder. Fault::Model where it has none; Fault::Usage where the model that answers
// lies on several ranks or devices. `in` must outlive it.
std::unique_ptr<TextVoice> open_voice(const ModelOptions& model, const RankOptions& mesh, Inference& in);
// Of a checkpoint that only speaks.
std::unique_ptr<TextVoice> open_lone_voice(const ModelOptions& model);
// The voice of SpeechOptions::recording; null: there is none.
std::shared_ptr<const LearntVoice> recorded_voice(const TextVoice& voice, const SpeechOptions& options);

}  // namespace apus
