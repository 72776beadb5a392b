// SPDX-License-Identifier: Apache-2.0
#include "models/speech/voice_reader.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/reflection_pad1d.h>
#include <ATen/ops/tensor.h>

#include <numbers>

#include "media/sound.h"
#include "models/spec/speech_spec.h"
#include "models/speech/manner.h"
#include "models/speech/sound_coder.h"

namespace apus {

VoiceReader::VoiceReader(const CloneSpec& spec)
    : spec_(spec), manner_parts_(spec.manner.parts), coder_parts_(spec.coder.parts) {}

namespace {
constexpr int64_t kPoints = 1024, kHop = 256, kBins = kPoints / 2 + 1;

// Logarithms of the amplitudes in bands -> [frames, bands].
at::Tensor mel_of(const at::Tensor& sample_N, int64_t bands) {
  const int64_t aside = (kPoints - kHop) / 2;
  require(sample_N.size(0) > aside, Fault::Data, "a recording of ", sample_N.size(0), " samples is too short");
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor at = at::arange(kPoints, wide) * (2 * std::numbers::pi / kPoints);
  const at::Tensor window = 0.5 - 0.5 * at.cos();
  const at::Tensor frames =
      at::reflection_pad1d(sample_N.view({1, 1, -1}), {aside, aside}).flatten().unfold(0, kPoints, kHop) *
      window.to(at::kFloat);
  const at::Tensor angle = at.unsqueeze(1) * at::arange(kBins, wide);
  const auto part = [&](const at::Tensor& wave) { return at::matmul(frames, wave.to(at::kFloat)).square(); };
  const at::Tensor amplitude = (part(angle.cos()) + part(angle.sin()) + 1e-9).sqrt();
  const at::Tensor filters =
      at::tensor(mel_filters(bands, kSpeechRate, kPoints), wide).view({kBins, bands}).to(at::kFloat);
  return at::matmul(amplitude, filters).clamp_min(1e-5).log();
}
}  // namespace

at::Tensor VoiceReader::speaker(const at::Tensor& sample_N) const {
  return manner_of(spec_.manner, manner_parts_, mel_of(sample_N, spec_.bands));
}

at::Tensor VoiceReader::codes(const at::Tensor& sample_N) const {
  return codes_of(spec_.coder, coder_parts_, sample_N);
}

}  // namespace apus
