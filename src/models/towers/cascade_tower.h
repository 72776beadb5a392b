// SPDX-License-Identifier: Apache-2.0
// The tower of models that hear as Phi-4-multimodal does (models/spec/cascade_spec.h): from log-mel spectrograms to the
// decoder's rows that stand for them.
#pragma once

#include <array>
#include <functional>

#include "models/spec/cascade_spec.h"
#include "models/towers/parts.h"
#include "nn/step.h"

namespace apus {

class CascadeTower {
 public:
  // `parts` hold its modules, and live as long.
  CascadeTower(const CascadeSpec& spec, const TowerParts& parts);
  const at::Tensor& numbers_like() const { return first_->weight(); }
  // Spectrograms [bands, frames] in the tower's dtype and on its device; their rows, one sound behind the other. What a
  // sound becomes does not depend on the others, but on whether it stands in a text with pictures. `step_of`: the step
  // for so many rows. `again`: layers run again in the backward pass.
  using StepOf = std::function<Step(int64_t rows)>;
  at::Tensor operator()(const std::vector<at::Tensor>& sounds_MF, const StepOf& step_of, bool again,
                        bool beside_pictures) const;

 private:
  struct FeedForwardPart {
    const Norm* norm;
    const Linear *up, *down;
  };
  struct Layer {
    FeedForwardPart first, last;
    const Norm *before_attention, *before_taps, *norm;
    const Linear *q, *k, *v, *out;
    const Table *in_taps, *taps, *behind_taps, *out_taps;
    const Param *added, *gate_added;
  };
  at::Tensor front(const at::Tensor& sound_MF, const StepOf& step_of) const;
  at::Tensor heard(const at::Tensor& x_TD, const StepOf& step_of, bool again) const;
  at::Tensor distances(int64_t rows) const;
  at::Tensor fed(const FeedForwardPart& part, const at::Tensor& x_TD, const Step& s) const;
  at::Tensor attended(const Layer& layer, const at::Tensor& x_TD, const at::Tensor& far_NTT, const Step& s) const;
  at::Tensor tapped(const Layer& layer, const at::Tensor& x_TD) const;
  at::Tensor projected(const at::Tensor& x_TD, bool beside_pictures, const StepOf& step_of) const;

  const CascadeSpec spec_;
  const Param *mean_, *times_;
  const Table *first_, *distances_;
  std::vector<std::array<const Table*, 2>> further_;  // of each channel for itself, and of all of them at one place
  const Linear* join_;
  std::vector<Layer> layers_;
  std::array<std::array<const Linear*, 2>, 2> projections_;  // of sounds alone, and beside pictures
};

}  // namespace apus
