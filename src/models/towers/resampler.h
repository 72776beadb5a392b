// SPDX-License-Identifier: Apache-2.0
// What makes a fixed number of rows of a picture of any size: queries that are learnt look at its rows once.
#pragma once

#include <functional>
#include <vector>

#include "models/spec/seeing_spec.h"
#include "models/spec/vision_grid.h"
#include "models/towers/parts.h"
#include "nn/step.h"

namespace apus {

class Resampler {
 public:
  // `parts` hold its modules, and live as long.
  Resampler(const VisionSpec& spec, const TowerParts& parts);
  // Rows of all grids, each line by line -> `queries` rows for each picture.
  at::Tensor operator()(const at::Tensor& x_ND, const std::vector<Grid>& grids,
                        const std::function<Step(int64_t rows)>& step_of) const;

 private:
  const int64_t width_, queries_, heads_;
  const Param *query_, *in_weight_, *in_bias_, *proj_;
  const Linear *kv_, *out_;  // kv: null where the tower is as wide already
  const Norm *of_query_, *of_rows_, *end_;
};

}  // namespace apus
