// SPDX-License-Identifier: Apache-2.0
#include "cli/speech_options.h"

#include "base/files.h"
#include "base/lines.h"
#include "models/spec/speech_spec.h"

namespace apus {

void SpeechOptions::speaker_field(OptionTable& v) {
  v("speaker", speaker, "the voice of a model that speaks, as config.json names it (talker_config.speaker_id)")
      .shown_default("the first in the alphabet");
}

void SpeechOptions::check(const ModelOptions& model) const {
  if (!enabled) return;
  const auto file = std::filesystem::path(model.model) / "config.json";
  const auto speech =
      std::filesystem::exists(file) ? describe_speech(parse_json(read_file(file, 16 << 20), file.string())) : nullptr;
  require(speech != nullptr, Fault::Usage, model.model,
          " does not speak: Qwen3-Omni does, where its config.json has a talker_config and does not say "
          "enable_audio_output false");
  voice_word(*speech, speaker);
}

}  // namespace apus
