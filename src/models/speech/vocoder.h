// SPDX-License-Identifier: Apache-2.0
// Sound from frames of codes: rows of the codes through a few layers of attention, then stretched in time step by step
// until there is a row for each sample.
#pragma once

#include "models/decoder.h"
#include "models/spec/speech_spec.h"
#include "models/speech/sound_maker.h"
#include "models/towers/parts.h"

namespace apus {

class Vocoder final : public SoundMaker {
 public:
  explicit Vocoder(VocoderSpec spec);
  const VocoderSpec& spec() const { return spec_; }
  Decoder& layers() { return layers_; }
  TowerParts& parts() { return parts_; }
  // Once the weights are in: scales of branches become a part of their last matrices, sums in codebooks become means.
  void settle();
  // The voice is in the codes.
  at::Tensor sound(const at::Tensor& code_FG, const SoundWish& wish = {}) const override;
  int64_t samples_per_frame() const override { return spec_.samples_per_frame(); }
  int64_t context() const override { return spec_.context; }

 private:
  at::Tensor decoded(const at::Tensor& code_FG) const;
  at::Tensor rows_of(const at::Tensor& code_FG) const;
  at::Tensor residual_rows(const at::Tensor& code_FG) const;
  at::Tensor through_layers(const at::Tensor& code_FG) const;
  at::Tensor convolved(const at::Tensor& x_1CT, const std::string& name, int64_t dilation = 1,
                       int64_t groups = 1) const;
  at::Tensor stretched(const at::Tensor& x_1CT, const std::string& name, int64_t by) const;
  at::Tensor mixed(const at::Tensor& x_1CT, const std::string& name) const;
  at::Tensor bent(const at::Tensor& x_1CT, const std::string& name) const;

  const VocoderSpec spec_;
  Decoder layers_;
  TowerParts parts_;
};

}  // namespace apus
