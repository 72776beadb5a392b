// SPDX-License-Identifier: Apache-2.0
// The tower of models that hear by a conformer (models/spec/conformer_spec.h): from log-mel spectrograms to the
// decoder's rows that stand for them.
#pragma once

#include <functional>

#include "models/spec/conformer_spec.h"
#include "models/towers/embedder.h"

namespace apus {

class ConformerTower {
 public:
  // `parts` hold its modules, and live as long.
  ConformerTower(const ConformerSpec& spec, const TowerParts& parts);
  const at::Tensor& numbers_like() const { return convolutions_[0].weight->weight(); }
  // Spectrograms [bands, frames] in the tower's dtype and on its device; their rows, one sound behind the other.
  // `step_of`: the step for so many rows. `again`: layers run again in the backward pass.
  using StepOf = std::function<Step(int64_t rows)>;
  at::Tensor operator()(const std::vector<at::Tensor>& sounds_MF, const StepOf& step_of, bool again = false) const;

 private:
  struct Convolution {
    const Table *weight, *norm;
  };
  struct FeedForwardPart {
    const Norm *before, *behind;
    const Linear *up, *down;
  };
  struct Layer {
    FeedForwardPart first, last;
    const Norm *before_attention, *behind_attention;
    const Linear *q, *k, *v, *place, *out;
    const Param* scale;
    const Norm *before_taps, *behind_taps, *norm;
    const Linear *in_taps, *out_taps;
    const Table* taps;
  };
  at::Tensor front(const at::Tensor& sound_MF, const StepOf& step_of) const;
  at::Tensor fed(const FeedForwardPart& part, const at::Tensor& x_TD, const Step& s) const;
  at::Tensor attended(const Layer& layer, const at::Tensor& x_TD, const Step& s) const;
  at::Tensor tapped(const Layer& layer, const at::Tensor& x_TD, const Step& s) const;
  at::Tensor through(const Layer& layer, const at::Tensor& x_TD, const Step& s) const;
  at::Tensor bounded(const at::Tensor& x) const;

  const ConformerSpec spec_;
  std::vector<Convolution> convolutions_;
  const Linear* join_;
  std::vector<Layer> layers_;
  Embedder embedder_;
};

}  // namespace apus
