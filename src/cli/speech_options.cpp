// SPDX-License-Identifier: Apache-2.0
#include "cli/speech_options.h"

#include "base/files.h"
#include "base/lines.h"
#include "models/spec/speech_spec.h"

namespace apus {

void SpeechOptions::voice_fields(OptionTable& v) {
  v("speaker", speaker,
    "the voice of a model that speaks, as the checkpoint names it (speaker_id or spk_id of talker_config, spk_dict.pt)")
      .shown_default("the first in the alphabet");
  v("speech_language", language, "the language of texts that Qwen3-TTS speaks (talker_config.codec_language_id)")
      .shown_default("auto: as the voice understands the text");
  v("speaker_audio", recording, "WAV file: speak in the voice of this recording, of a few seconds; of Qwen3-TTS Base");
  v("speaker_text", words, "the words of --speaker_audio, which bring its manner of speaking too");
}

void SpeechOptions::settle(const ModelOptions& model, bool now) {
  const std::filesystem::path dir = model.model;
  Json config = Json::object();
  if (const auto file = dir / "config.json"; std::filesystem::exists(file))
    config = parse_json(read_file(file, 16 << 20), file.string());
  alone = only_speaks(config);
  if (!enabled && !alone) return;
  const auto speech = describe_speech(with_speech_files(std::move(config), dir));
  require(
      speech != nullptr, Fault::Usage, model.model,
      " does not speak: Qwen2.5-Omni and Qwen3-Omni do, where their config.json has a talker_config and does not say "
      "enable_audio_output false, and Qwen3-TTS");
  voice_word(*speech, speaker), language_word(*speech, language, speaker);
  const bool clones = speech->clone.has_value();
  require(!clones || !now || !recording.empty(), Fault::Usage, model.model,
          " speaks in the voice of a recording: --speaker_audio FILE says which");
  require(clones || recording.empty(), Fault::Usage,
          "--speaker_audio: this model has voices of its own, and learns no others; Qwen3-TTS Base does");
  require(words.empty() || !recording.empty(), Fault::Usage,
          "--speaker_text says the words of --speaker_audio, which is missing");
  require(recording.empty() || std::filesystem::is_regular_file(recording), Fault::Usage,
          "--speaker_audio: there is no file ", recording);
}

}  // namespace apus
