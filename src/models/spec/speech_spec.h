// SPDX-License-Identifier: Apache-2.0
// How a model speaks, as data, without the tensor library. Sound is told in frames, each of one or a few codes. The
// talker, a decoder, says the first code of each frame; a smaller decoder, the finisher, says the others one by one; a
// vocoder makes sound of the frames.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/spec/clone_spec.h"
#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"
#include "models/spec/flow_spec.h"
#include "models/spec/seeing_spec.h"

namespace apus {

struct VocoderSpec {
  // Of the module, in the checkpoint.
  std::string name;
  // What the rows of frames go through first. It has no embedding and no head.
  DecoderSpec layers;
  // Of each codebook, and how many there are.
  int64_t words = 2048, books = 16;
  // By how much time is stretched: by the parts before the decoder of sound, and by each of its blocks.
  std::vector<int64_t> stretches, rates;
  // A frame's row is the mean of rows of one table; or made of residual codebooks (semantic first, the others summed),
  // each kind by a matrix, and brought to the layers' width by a convolution and a matrix, and back behind them.
  bool residual = false;
  // What stands alone at the beginning of a stretch is cut off, as at its end.
  bool cuts_beginning = true;
  // Frames that are decoded at once, and those before them that are decoded again for what they leave behind.
  int64_t frames = 300, context = 25;
  int64_t samples_per_frame() const;
  std::vector<TowerPart> parts;
};

inline constexpr int64_t kSpeechRate = 24000;  // samples a second

struct SpeechSpec {
  // There is no model that answers: the talker is given the text itself.
  bool alone = false;
  // The talker reads the whole chat: of each token its embedding (of a medium's: none) and what the model made of it.
  bool reads_chat = false;
  DecoderSpec talker, finisher;
  // Of each frame. Of one there is no finisher.
  int64_t codes = 16;
  // The width of the rows of text that are spoken, and the layer of the model that answers whose input is what the
  // talker is told of media.
  int64_t text_width = 0, sees_layer = 0;
  // Words of the text: what stands before the first word, behind the last one, and where there is none.
  struct TextMarks {
    int64_t begin = 0, end = 0, none = 0;
  } text;
  // Words of the talker.
  struct CodeMarks {
    int64_t begin = 0, end = 0, none = 0, no_thought = 0, thought_begin = 0, thought_end = 0, thought = 0;
  } code;
  // Words that end speech; those that are never said; and those that count as said before it begins.
  std::vector<int32_t> ends, unsaid, said;
  // What a turn of a chat begins with, and the words of who speaks behind it.
  int64_t turn = 0, user = 0, assistant = 0;
  // Words of the talker, by name; where it reads the chat, voices are words of the text.
  std::map<std::string, int64_t> voices, languages;
  // Voices that speak a dialect where Chinese or no language is asked for.
  std::map<std::string, std::string> dialects;
  // How the first codes of frames are drawn, and the finisher's.
  double first_top_p = 1, rest_temperature = 1, rest_top_p = 0.8;
  int64_t first_top_k = 50;
  int64_t least_codes = 0;
  std::string name = "talker";
  std::vector<TowerPart> parts;
  // What makes sound of the codes: one of both.
  VocoderSpec vocoder;
  std::optional<FlowVocoderSpec> flow;
  // Of a model that speaks in the voice of a recording, and has none of its own.
  std::optional<CloneSpec> clone;
};

// As names of voices and languages are kept.
std::string in_small_letters(std::string name);

// The talker's word of a voice, whose name may be in capitals; "": of the first. Fault::Usage naming those there are.
int64_t voice_word(const SpeechSpec& spec, const std::string& voice);

// The talker's word of a language; -1: of none in particular ("" or auto). A voice that speaks a dialect does so where
// Chinese or none is asked for. Fault::Usage naming those there are.
int64_t language_word(const SpeechSpec& spec, const std::string& language, const std::string& voice);

// How checkpoints of a model_type speak; gives null where config.json says that this one does not.
struct RegisterSpeech {
  RegisterSpeech(const char* model_type, std::shared_ptr<const SpeechSpec> (*read)(const Config& config));
};
// Of Qwen2.5-Omni and Qwen3-Omni, by the whole config.json; and of Qwen3-TTS. What stands in other files than
// config.json: see with_speech_files.
std::shared_ptr<const SpeechSpec> read_flow_speech(const Config& config);
std::shared_ptr<const SpeechSpec> read_qwen3_speech(const Config& config);
std::shared_ptr<const SpeechSpec> read_qwen3_tts(const Config& config);
inline constexpr const char* kVocoderFolder = "speech_tokenizer";
inline constexpr const char* kVoicesFile = "spk_dict.pt";
// config.json of a checkpoint, with the settings of its vocoder under kVocoderFolder where it has a folder of its own,
// and its voices with their words under kVoicesFile where it has such a file.
Json with_speech_files(Json config, const std::filesystem::path& checkpoint);

// By model_type; null: it does not speak.
std::shared_ptr<const SpeechSpec> describe_speech(const Json& config);
// Whether such a model gives no words, only speech. (Not whether this one can be read.)
bool only_speaks(const Json& config);

}  // namespace apus
