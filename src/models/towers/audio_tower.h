// SPDX-License-Identifier: Apache-2.0
// The towers of models that hear: from log-mel spectrograms, or samples, to the decoder's rows that stand for them.
#pragma once

#include <functional>

#include "models/spec/hearing_spec.h"
#include "models/towers/parts.h"
#include "nn/step.h"

namespace apus {

class AudioTower {
 public:
  // `parts` hold its modules, and live as long.
  AudioTower(const HearingSpec& spec, const TowerParts& parts);
  // Null: nothing here shows what type and device numbers are of (bare ears, whose eyes do).
  const at::Tensor* numbers_like() const { return convolutions_.empty() ? nullptr : &convolutions_[0]->weight(); }
  // Spectrograms [mels, frames] (of bare ears, samples [a frame's, frames]) in the tower's dtype and on its device;
  // their rows, one sound behind the other. What a sound becomes does not depend on the others. `step_of`: the step for
  // so many rows. `again`: layers run again in the backward pass.
  using StepOf = std::function<Step(int64_t rows)>;
  at::Tensor operator()(const std::vector<at::Tensor>& sounds_MF, const StepOf& step_of, bool again = false) const;

 private:
  struct Layer {
    const Norm *before_attention, *before_feed_forward;
    const Linear *q, *k, *v, *out, *up, *down;
  };
  struct Chunks;
  at::Tensor bare(const std::vector<at::Tensor>& sounds_SF, const StepOf& step_of) const;
  at::Tensor convolved(const Chunks& chunks, const StepOf& step_of) const;
  at::Tensor line_front(const at::Tensor& chunk_BFM, const at::Tensor& heard_BF) const;
  at::Tensor plane_front(const at::Tensor& chunk_BFM) const;
  at::Tensor places(int64_t rows, const at::Tensor& like) const;

  const HearingSpec spec_;
  std::vector<const Table*> convolutions_;
  const Table* positions_ = nullptr;  // null: sines
  const Linear* join_ = nullptr;      // of bands and channels; null: a line has none
  std::vector<Layer> layers_;
  const Norm* norm_ = nullptr;  // null: bare ears have none with weights
  std::vector<const Linear*> projections_;
};

}  // namespace apus
