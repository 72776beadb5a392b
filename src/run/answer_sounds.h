// SPDX-License-Identifier: Apache-2.0
// Answers of `apus infer` as WAV files.
#pragma once

#include <filesystem>
#include <memory>

#include "base/signals.h"
#include "cli/infer.h"
#include "run/opened_voice.h"

namespace apus {

class AnswerSounds {
 public:
  // `in`: null where no model answers, and texts are spoken as they are.
  AnswerSounds(const InferOptions& options, Inference* in);
  const TextVoice& voice() const { return *voice_; }
  bool wanted() const { return voice_ != nullptr; }
  // The file that the answer is in now, DIR/name.wav.
  std::string keep(const std::string& name, const SpokenText& text, uint64_t seed, const StopFlag& stop);

 private:
  const std::filesystem::path dir_;
  const std::string speaker_, language_;
  std::unique_ptr<TextVoice> voice_;
  std::shared_ptr<const LearntVoice> like_;
};

// The tokens of an answer without what ends it.
std::vector<int32_t> spoken_tokens(const std::vector<TokenOut>& answer, const std::vector<int32_t>& stop_ids);

}  // namespace apus
