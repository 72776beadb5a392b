// SPDX-License-Identifier: Apache-2.0
#include "models/spec/speech_spec.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "base/registry.h"
#include "models/spec/family.h"
#include "tensor/weight_files.h"

namespace apus {

namespace {
struct SpeechReader {
  std::shared_ptr<const SpeechSpec> (*read)(const Config& config);
};

const SpeechReader* reader_of(const Json& config) {
  return config.is_object() ? Registry<SpeechReader>::of().find(Config(config).text("model_type", "")) : nullptr;
}

int64_t product(const std::vector<int64_t>& factors) {
  return std::accumulate(factors.begin(), factors.end(), int64_t{1}, std::multiplies<>());
}

int64_t word_of(const std::map<std::string, int64_t>& words, const char* kind, const std::string& name) {
  const auto found = words.find(in_small_letters(name));
  std::vector<std::string> names;
  for (const auto& entry : words) names.push_back(entry.first);
  require(found != words.end(), Fault::Usage, "there is no ", kind, " '", name, "'; this model has ",
          names.empty() ? "none" : join(names));
  return found->second;
}
}  // namespace

std::string in_small_letters(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

int64_t VocoderSpec::samples_per_frame() const { return product(stretches) * product(rates); }

int64_t voice_word(const SpeechSpec& spec, const std::string& voice) {
  if (!voice.empty()) return word_of(spec.voices, "voice", voice);
  require(!spec.voices.empty() || spec.alone, Fault::Model, "the checkpoint has no voices (",
          spec.flow ? str("the file ", kVoicesFile, ", to be downloaded with it")
                    : "talker_config.speaker_id of config.json",
          "): nothing can be spoken");
  return spec.voices.empty() ? -1 : spec.voices.begin()->second;
}

int64_t language_word(const SpeechSpec& spec, const std::string& language, const std::string& voice) {
  const std::string name = in_small_letters(language);
  const bool open = name.empty() || name == "auto";
  const std::string speaker =
      voice.empty() && !spec.voices.empty() ? spec.voices.begin()->first : in_small_letters(voice);
  const auto dialect = spec.dialects.find(speaker);
  if ((open || name == "chinese") && dialect != spec.dialects.end()) return spec.languages.at(dialect->second);
  return open ? -1 : word_of(spec.languages, "language", language);
}

RegisterSpeech::RegisterSpeech(const char* model_type,
                               std::shared_ptr<const SpeechSpec> (*read)(const Config& config)) {
  Registry<SpeechReader>::of().add(model_type, {read});
}

namespace {
constexpr int64_t kMostVoices = 64 << 20;  // bytes of their file

// Each voice with its word of the text.
Json voices_of(const std::filesystem::path& file) {
  const std::string bytes = read_file(file, kMostVoices);
  const SafetensorsHeader header =
      parse_weights_header(reinterpret_cast<const std::byte*>(bytes.data()), std::ssize(bytes), file.string());
  const std::string word = ".bos_token";
  Json voices = Json::object();
  for (const auto& [name, number] : header.metadata)
    if (name.ends_with(word))
      voices[in_small_letters(name.substr(0, name.size() - word.size()))] = parse_json(number, file.string());
  return voices;
}
}  // namespace

Json with_speech_files(Json config, const std::filesystem::path& checkpoint) {
  const auto settings = checkpoint / kVocoderFolder / "config.json", voices = checkpoint / kVoicesFile;
  if (std::filesystem::exists(settings))
    config[kVocoderFolder] = parse_json(read_file(settings, 16 << 20), settings.string());
  if (std::filesystem::exists(voices)) config[kVoicesFile] = voices_of(voices);
  return config;
}

std::shared_ptr<const SpeechSpec> describe_speech(const Json& config) {
  const SpeechReader* reader = reader_of(config);
  const auto speech = reader ? reader->read(Config(config)) : nullptr;
  if (!speech) return nullptr;
  check_widths(speech->talker);
  if (speech->codes > 1) check_widths(speech->finisher);
  if (!speech->flow) check_widths(speech->vocoder.layers);
  return speech;
}

bool only_speaks(const Json& config) {
  return reader_of(config) && !is_known_model(Config(config).text("model_type", ""));
}

}  // namespace apus
