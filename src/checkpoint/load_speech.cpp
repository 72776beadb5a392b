// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load_speech.h"

#include "models/spec/speech_spec.h"

namespace apus {

namespace {
void prepare(Module& all) {
  all.visit_modules([](const std::string&, Module& module) { module.prepare_inference(); });
}

// Modules that are no model of their own.
void load_parts(Module& parts, const TensorFolder& source, at::ScalarType dtype, c10::Device device) {
  parts.visit([&](const std::string& name, Param& p) {
    const TensorEntry* const entry = source.find(name);
    require(entry, Fault::Model, "the checkpoint's speaking parts are not whole: ", name, " is missing");
    require(entry->shape == p.full, Fault::Model, "the checkpoint's speaking parts do not fit its config.json: ", name,
            " has another shape");
    p.data = source.tensor(name).to(device, dtype);
  });
  prepare(parts);
}

void load_decoder(Decoder& decoder, const TensorFolder& source, LoadOptions how) {
  how.part_only = true;
  load_weights(decoder, source, how);
}
}  // namespace

void load_vocoder(Vocoder& vocoder, const TensorFolder& source) {
  load_decoder(vocoder.layers(), source, {.dtype = at::kFloat});
  load_parts(vocoder.parts(), source, at::kFloat, at::kCPU);
  vocoder.settle();
  prepare(vocoder.layers());
}

namespace {
std::map<std::string, VoiceSample> voice_samples(const std::filesystem::path& path) {
  const auto file = SafetensorsFile::open(path);
  const std::string own = ".cond", sample = ".ref_mel";
  std::map<std::string, VoiceSample> out;
  for (const auto& [key, entry] : file->entries()) {
    if (!key.ends_with(own)) continue;
    const std::string name = key.substr(0, key.size() - own.size());
    const at::Tensor mel = file->tensor(name + sample).to(at::kFloat);
    require(mel.dim() == 2 || (mel.dim() == 3 && mel.size(0) == 1), Fault::Model, path.string(), ": ", name, sample,
            " is not one sample of mel");
    out[in_small_letters(name)] = {file->tensor(key).to(at::kFloat), mel.dim() == 3 ? mel[0] : mel};
  }
  return out;
}

// In f32, the flow on the device and convolutions on the processor. `voices`: the file of their samples.
void load_flow_vocoder(FlowVocoder& vocoder, const TensorFolder& source, const std::filesystem::path& voices,
                       c10::Device device) {
  load_parts(vocoder.flow_parts(), source, at::kFloat, device);
  for (TowerParts* each : {&vocoder.manner_parts(), &vocoder.wave_parts()})
    load_parts(*each, source, at::kFloat, at::kCPU);
  require(std::filesystem::exists(voices), Fault::Model, voices.string(),
          " is missing: it holds the voices; download it with the checkpoint");
  vocoder.learn_voices(voice_samples(voices));
}
}  // namespace

SpeakingParts load_speech(const std::filesystem::path& dir, at::ScalarType dtype, c10::Device device) {
  const Json config = with_speech_files(read_model_config(dir), dir);
  SpeakingParts speech{.spec = describe_speech(config)};
  require(speech.spec != nullptr, Fault::Model, dir.string(), " holds no model that speaks: its config.json has no ",
          "talker_config, or says enable_audio_output false");
  const TensorFolder source(dir);
  const auto quantised = quantised_weights(config, {}, dir);
  const LoadOptions how{.dtype = dtype, .device = device, .quantised = quantised.get()};
  speech.talker = std::make_unique<Talker>(*speech.spec);
  for (Decoder* each : {&speech.talker->says_first(), speech.talker->says_rest()})
    if (each) load_decoder(*each, source, how), prepare(*each);
  load_parts(speech.talker->parts(), source, dtype, device);

  if (speech.spec->flow) {
    auto vocoder = std::make_unique<FlowVocoder>(*speech.spec->flow);
    load_flow_vocoder(*vocoder, source, dir / kVoicesFile, device);
    speech.vocoder = std::move(vocoder);
  } else {
    auto vocoder = std::make_unique<Vocoder>(speech.spec->vocoder);
    load_vocoder(*vocoder, speech.spec->alone ? TensorFolder(dir / kVocoderFolder) : source);
    speech.vocoder = std::move(vocoder);
  }
  if (speech.spec->clone) {
    speech.reader = std::make_unique<VoiceReader>(*speech.spec->clone);
    load_parts(speech.reader->manner_parts(), source, at::kFloat, at::kCPU);
    load_parts(speech.reader->coder_parts(), TensorFolder(dir / kVocoderFolder), at::kFloat, at::kCPU);
  }
  return speech;
}

}  // namespace apus
