// SPDX-License-Identifier: Apache-2.0
// What makes rows of a video's pairs of frames: cells of merge x merge patches, each with that of the next frame in its
// place. An image is a pair with itself.
#pragma once

#include <functional>
#include <vector>

#include "models/spec/seeing_spec.h"
#include "models/spec/vision_grid.h"
#include "models/towers/parts.h"
#include "nn/step.h"

namespace apus {

class PairMerger {
 public:
  // `parts` hold its modules, and live as long.
  PairMerger(const VisionSpec& spec, const TowerParts& parts);
  // Patches of all grids, in blocks of merge x merge -> a row of each cell of each pair.
  at::Tensor operator()(const at::Tensor& x_ND, const std::vector<Grid>& grids,
                        const std::function<Step(int64_t rows)>& step_of) const;

 private:
  struct Block {
    const Linear *in, *out;
    const Norm* norm;
    at::Tensor operator()(const at::Tensor& x_MC, const Step& s) const;
  };
  const int64_t cell_, patches_;  // numbers of a cell, and its patches
  Block spatial_, temporal_;
  const Linear* last_;
  const Norm* last_norm_;
};

}  // namespace apus
