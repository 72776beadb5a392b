// SPDX-License-Identifier: Apache-2.0
// An encoder: the decoder's parts, whose attention looks both ways (AttentionForm::both_ways), without a cache and
// without words. What it has besides is a table that tells two texts apart, and a head of labels with own layers.
#pragma once

#include "models/decoder.h"

namespace apus {

class EncoderModel : public Decoder {
 public:
  explicit EncoderModel(DecoderSpec spec);
  const EncoderForm* encoder() const override { return &*spec().encoder; }
  void begin(Step& s) const override;
  // Labels of states that are one a text already.
  at::Tensor head(const at::Tensor& state_SD, const Step& s) const override;

 protected:
  at::Tensor with_types(at::Tensor x_TD, const Inputs& in, const Step& s) const override;

 private:
  // Null where there is none.
  Embedding *types_ = nullptr, *distances_ = nullptr;
  Linear* dense_ = nullptr;
  Norm* norm_ = nullptr;
};

}  // namespace apus
