// SPDX-License-Identifier: Apache-2.0
// The tower of models that lay pictures on canvases (models/spec/canvas_spec.h): from tiles to the rows that layers of
// the decoder read.
#pragma once

#include <vector>

#include "models/spec/canvas_spec.h"
#include "models/towers/vision_tower.h"

namespace apus {

class CanvasTower {
 public:
  // `parts` hold its modules, and live as long.
  CanvasTower(const CanvasSpec& spec, const TowerParts& parts);
  using StepOf = VisionTower::StepOf;
  // Patches of all tiles of all pictures, line by line. Of each picture the rows of its own tiles come first, then
  // those of tiles that fill it up.
  at::Tensor operator()(const at::Tensor& patch_NP, const std::vector<const MediaContent*>& pictures,
                        const StepOf& step_of, bool again) const;
  const at::Tensor& numbers_like() const { return patches_->weight(); }

 private:
  struct Layer {
    const Norm *before_attention, *before_feed_forward;
    const Linear *q, *k, *v, *out, *up, *down;
    const Param *attention_gate = nullptr, *feed_forward_gate = nullptr;  // null: both are open
  };
  struct Order;
  std::vector<Layer> layers(const TowerParts& parts, const std::string& name, int64_t count, bool gated) const;
  at::Tensor of_shape(const Table& table, const Param& gate, const at::Tensor& shape_I, int64_t rows) const;
  at::Tensor embedded(const at::Tensor& patch_NP, const std::vector<CanvasTiles>& tiles,
                      const at::Tensor& shape_I) const;
  at::Tensor attended(const Layer& layer, const at::Tensor& x_ND, const Order& order, const Step& s) const;
  at::Tensor through(const Layer& layer, const at::Tensor& x_ND, const Order& order, const Step& s) const;

  const CanvasSpec spec_;
  const Table *patches_, *tile_positions_, *tile_before_, *tile_behind_;
  const Param *first_, *positions_, *positions_gate_, *before_gate_, *behind_gate_;
  const Norm *norm_in_, *norm_out_;
  std::vector<Layer> local_, global_;
  const Linear* projector_;
};

}  // namespace apus
