// SPDX-License-Identifier: Apache-2.0
// What makes lines of a picture's patches: cells of merge x merge of them, each line ended by a cell of the model's
// own, and a row before and behind all of them.
#pragma once

#include <functional>
#include <vector>

#include "models/spec/seeing_spec.h"
#include "models/spec/vision_grid.h"
#include "models/towers/parts.h"
#include "nn/step.h"

namespace apus {

class LineMerger {
 public:
  // `parts` hold its modules, and live as long.
  LineMerger(const VisionSpec& spec, const TowerParts& parts);
  // Patches of all grids, in blocks of merge x merge -> LinesForm::rows of each frame.
  at::Tensor operator()(const at::Tensor& x_ND, const std::vector<Grid>& grids,
                        const std::function<Step(int64_t rows)>& step_of) const;

 private:
  const int64_t width_, merge_;
  const Norm *before_, *behind_;
  const Table *narrow_, *wide_;
  const Linear* linear_;
  const Param *newline_, *begin_, *end_;
};

}  // namespace apus
