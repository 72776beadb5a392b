// SPDX-License-Identifier: Apache-2.0
// Rows of patches: where they lie in their pictures, and what several of them become. No weights.
#pragma once

#include <vector>

#include "models/spec/seeing_spec.h"
#include "models/spec/vision_grid.h"
#include "nn/step.h"

namespace apus {

// By how much each patch's queries and keys are turned, [patches, half a head], as VisionSpec's switches say.
Turn patch_turns(const PatchPlaces& places, const VisionSpec& spec, at::Device device);
// A row before each run of rows, which end at `ends` (0 first); and away with them again.
at::Tensor with_rows_before(const at::Tensor& x_ND, const at::Tensor& row_1D, const std::vector<int32_t>& ends);
at::Tensor without_rows_before(const at::Tensor& x_ND, const std::vector<int32_t>& ends);

// TableForm::Nearest: the entry of each patch. `in_steps`: VisionSpec::table_in_steps.
at::Tensor nearest_in_table(const std::vector<Grid>& grids, int64_t merge, int64_t side, bool in_steps);
// The same of parts of frames, over each of which the table is spread; patches beyond have the first entry.
at::Tensor nearest_in_parts(const std::vector<Grid>& grids, int64_t merge, int64_t side, const FrameParts& parts);
// TableForm::Smooth: of a square table [side x side, D], line by line of each picture.
at::Tensor smooth_rows(const at::Tensor& table, int64_t side, const std::vector<Grid>& grids);
// TableForm::Axes: of a table for columns and one for lines.
at::Tensor rows_of_axes(const at::Tensor& table_2PD, const std::vector<Grid>& grids, int64_t merge);

// The mean of two by two patches, in the grids that are pooled. Patches stand line by line.
at::Tensor pooled_rows(const at::Tensor& x_ND, const std::vector<Grid>& grids, const std::vector<bool>& pooled);
// Squares of `side` patches a side as rows, line by line of each picture; beyond its edges are zeros.
at::Tensor joined_squares(const at::Tensor& x_ND, const std::vector<Grid>& grids, int64_t side);

}  // namespace apus
