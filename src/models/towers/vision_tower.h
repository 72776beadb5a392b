// SPDX-License-Identifier: Apache-2.0
// The tower of seeing models: from patches of images and videos to the rows that stand in the decoder for them.
#pragma once

#include <optional>
#include <vector>

#include "models/spec/seeing_spec.h"
#include "models/spec/vision_grid.h"
#include "models/towers/line_merger.h"
#include "models/towers/pair_merger.h"
#include "models/towers/parts.h"
#include "models/towers/resampler.h"
#include "nn/step.h"

namespace apus {

// What a tower makes of media: a row for each token that stands for them, in order.
struct Sight {
  at::Tensor row_MD;
  std::vector<at::Tensor> late_MD;  // the same for the decoder's first layers
};

// Pictures [pictures, channels, height, width] as rows of patches, in the order that vision_grid tells.
at::Tensor patches_of_planes(const at::Tensor& pictures, const VisionSpec& spec);

class VisionTower {
 public:
  // `parts` hold its modules, and live as long.
  VisionTower(const VisionSpec& spec, const TowerParts& parts);
  // Patches of all grids, one grid behind the other, in the tower's dtype and on its device. `step_of`: the step for so
  // many rows, which says what adapters and dropout do to them. `again`: layers run again in the backward pass.
  // `pooled`: of these grids two by two patches become one before the merger, their mean; empty: of none. `parts`: of
  // towers without windows whose positions are the nearest of a table.
  using StepOf = std::function<Step(int64_t rows)>;
  Sight operator()(const at::Tensor& patch_NP, const std::vector<Grid>& grids, const StepOf& step_of,
                   bool again = false, const std::vector<bool>& pooled = {}, const FrameParts& parts = {}) const;
  // Rows of marks (VisionSpec::mark_tokens), by their numbers.
  at::Tensor marks(const at::Tensor& mark_M) const;
  // Its numbers lie on the device of this, in its dtype.
  const at::Tensor& numbers_like() const { return patches_->weight(); }

 private:
  // A linear layer of a block, and the numbers that its inputs and results are kept between; null: there are none.
  struct Product {
    const Linear* linear = nullptr;
    const Param* limits[4] = {};
    explicit operator bool() const { return linear != nullptr; }
    at::Tensor operator()(const at::Tensor& x, const Step& s) const;
  };
  struct Block {
    const Norm *norm1, *norm2, *after_attention = nullptr, *after_feed_forward = nullptr;
    Product qkv, q, k, v, proj;
    const Norm *q_norm = nullptr, *k_norm = nullptr;
    const Param *scale1 = nullptr, *scale2 = nullptr;
    Product gate, up, down;
    bool full;
    int deep;  // which deep merger reads its output; -1: none
  };
  struct Merger {
    const Norm* norm;
    const Linear *cells, *in, *out;
    const Param* matrix;
    bool norm_first;  // before cells are put together, or behind that
    const Linear *before = nullptr, *gate = nullptr, *end = nullptr;
  };
  struct Halving {
    const Norm *norm, *cell_norm;
    const Linear *q, *k, *v, *proj, *in, *out;
  };
  struct Segments;
  struct Layout;
  Layout layout(const std::vector<Grid>& grids, at::Device device, const FrameParts& parts) const;
  at::Tensor by_pixel(const at::Tensor& patch_NP) const;
  at::Tensor embedded(const at::Tensor& patch_NP, const std::vector<Grid>& grids, const FrameParts& parts) const;
  at::Tensor placed(const at::Tensor& x_ND, const std::vector<Grid>& grids, const FrameParts& parts) const;
  at::Tensor with_first_rows(const at::Tensor& x_ND, const std::vector<int32_t>& ends) const;
  Turn with_first_turns(const Turn& turn, const std::vector<int32_t>& ends) const;
  at::Tensor through(const Block& block, at::Tensor x_ND, const Layout& l, const Step& s) const;
  at::Tensor attended(const Block& block, const at::Tensor& x_ND, const Layout& l, const Step& s) const;
  at::Tensor halved(const at::Tensor& x_ND, const StepOf& step_of) const;
  at::Tensor turned(const at::Tensor& x_NnH) const;
  at::Tensor fed(const Block& block, const at::Tensor& x_ND, const Step& s) const;
  at::Tensor of_means(const at::Tensor& x_MnD) const;
  at::Tensor cells_of(const at::Tensor& x_ND) const;
  at::Tensor gated(const Merger& merger, const at::Tensor& x_ND, const StepOf& step_of) const;
  at::Tensor narrowed(const at::Tensor& x_ND, const std::vector<Grid>& grids) const;
  at::Tensor merged(const Merger& merger, const at::Tensor& x_ND, const Layout& l, const StepOf& step_of) const;
  at::Tensor in_words(const at::Tensor& x_ND, const Layout& l, const StepOf& step_of) const;

  const VisionSpec spec_;
  // Null: patches come as rows; there is none.
  const Table *patches_ = nullptr, *positions_ = nullptr, *words_ = nullptr;
  const Table* cell_maker_ = nullptr;                    // null: cells are joined
  const Table *narrow_ = nullptr, *narrower_ = nullptr;  // null: patches are not narrowed
  // A row that stands before each picture's patches, and positions with its own before the others where they are bare.
  // Null: there is none.
  const Param *first_ = nullptr, *first_and_positions_ = nullptr, *first_angles_ = nullptr;
  // VisionSpec::line_end and between. Null: there are none.
  const Param *line_end_ = nullptr, *between_ = nullptr;
  // TableForm::Axes; VisionNames::cells_minus and cells_times. Null: there is none.
  const Param *axes_ = nullptr, *cells_minus_ = nullptr, *cells_times_ = nullptr;
  // Of patches, before the first block and behind the last one. Null: there is none.
  const Norm *norm_patches_ = nullptr, *norm_in_ = nullptr, *norm_out_ = nullptr;
  std::vector<Block> blocks_;
  std::optional<Halving> halving_;
  Merger merger_;
  std::optional<Resampler> resampler_;  // set: in place of the merger
  std::optional<LineMerger> lines_;     // the same
  std::optional<PairMerger> pairs_;     // the same
  std::vector<Merger> deep_mergers_;
};

}  // namespace apus
