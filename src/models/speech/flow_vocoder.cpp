// SPDX-License-Identifier: Apache-2.0
#include "models/speech/flow_vocoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include <functional>
#include <numeric>

#include "base/error.h"
#include "models/speech/manner.h"
#include "models/speech/wave_maker.h"
#include "tensor/noise.h"

namespace apus {

FlowVocoder::FlowVocoder(const FlowVocoderSpec& spec)
    : spec_(spec), flow_(spec.flow), manner_parts_(spec.manner.parts), wave_parts_(spec.wave.parts) {}

void FlowVocoder::learn_voices(const std::map<std::string, VoiceSample>& samples) {
  for (const auto& [name, sample] : samples) {
    require(sample.own_V.numel() == spec_.flow.voice && sample.mel_TM.size(1) == spec_.flow.bands, Fault::Model,
            "the voice '", name, "' is told by ", sample.own_V.numel(), " numbers and a sample of ",
            sample.mel_TM.size(1), " bands; config.json says ", spec_.flow.voice, " and ", spec_.flow.bands);
    const auto manner = [&](const at::Tensor& mel) { return manner_of(spec_.manner, manner_parts_, mel); };
    voices_[name] = {sample.own_V.flatten(), manner(sample.mel_TM), manner(at::zeros_like(sample.mel_TM))};
  }
}

at::Tensor FlowVocoder::mel(const at::Tensor& code_FG, const std::string& voice, const at::Tensor& noise_TM) const {
  const auto found = voice.empty() ? voices_.begin() : voices_.find(voice);
  require(found != voices_.end(), Fault::Usage, "there is no sample of the voice '", voice, "' in the checkpoint");
  const at::Device device = flow_.device();
  const Flow::Voice& of = found->second;
  const Flow::Voice there{of.own_V.to(device), of.manner_E.to(device), of.no_manner_E.to(device)};
  return flow_.mel(code_FG.select(1, 0).to(device), there, noise_TM.to(device)).to(at::kCPU);
}

int64_t FlowVocoder::samples_per_frame() const {
  const auto& rates = spec_.wave.rates;
  return std::accumulate(rates.begin(), rates.end(), spec_.flow.repeats, std::multiplies<>());
}

at::Tensor FlowVocoder::wave(const at::Tensor& mel_TM) const { return wave_of(spec_.wave, wave_parts_, mel_TM); }

at::Tensor FlowVocoder::sound(const at::Tensor& code_FG, const SoundWish& wish) const {
  const at::Tensor noise_TM =
      normal_noise({code_FG.size(0) * spec_.flow.repeats, spec_.flow.bands}, /*mean=*/0, /*deviation=*/1, wish.seed);
  return wave(mel(code_FG, wish.voice, noise_TM));
}

}  // namespace apus
