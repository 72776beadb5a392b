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

SpeakingParts load_speech(const std::filesystem::path& dir, at::ScalarType dtype, c10::Device device) {
  const Json config = with_vocoder_settings(read_model_config(dir), dir);
  SpeakingParts speech{.spec = describe_speech(config)};
  require(speech.spec != nullptr, Fault::Model, dir.string(), " holds no model that speaks: its config.json has no ",
          "talker_config, or says enable_audio_output false");
  const TensorFolder source(dir);
  const auto quantised = quantised_weights(config, {}, dir);
  const LoadOptions how{.dtype = dtype, .device = device, .quantised = quantised.get()};
  speech.talker = std::make_unique<Talker>(*speech.spec);
  for (Decoder* each : {&speech.talker->says_first(), &speech.talker->says_rest()})
    load_decoder(*each, source, how), prepare(*each);
  load_parts(speech.talker->parts(), source, dtype, device);

  speech.vocoder = std::make_unique<Vocoder>(speech.spec->vocoder);
  const auto own = dir / kVocoderFolder;
  load_vocoder(*speech.vocoder, speech.spec->alone ? TensorFolder(own) : source);
  return speech;
}

}  // namespace apus
