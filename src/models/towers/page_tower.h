// SPDX-License-Identifier: Apache-2.0
// The towers of models that read pages (models/spec/page_spec.h): from views of pages to the rows that stand in the
// decoder for them.
#pragma once

#include <optional>
#include <vector>

#include "models/towers/sam_tower.h"
#include "models/towers/vision_tower.h"

namespace apus {

class PageTower {
 public:
  // `parts` hold its modules, and live as long.
  PageTower(const PageSpec& spec, const TowerParts& parts);
  using StepOf = VisionTower::StepOf;
  // Patches of all views of all pages, line by line.
  at::Tensor operator()(const at::Tensor& patch_NP, const std::vector<const MediaContent*>& pages,
                        const StepOf& step_of, bool again) const;
  const at::Tensor& numbers_like() const { return sam_.numbers_like(); }

 private:
  struct Layer {
    const Norm *before_attention, *before_feed_forward;
    const Linear *q, *k, *v, *out, *gate, *up, *down;
  };
  at::Tensor views(const at::Tensor& patch_NP, int64_t side, const StepOf& step_of, bool again) const;
  at::Tensor asked(const at::Tensor& x_BMD, const StepOf& step_of, bool again) const;
  at::Tensor through(const Layer& layer, const at::Tensor& x_ND, int64_t pictures, int64_t seen, const Step& s) const;
  at::Tensor page(const MediaContent& content, const std::vector<at::Tensor>& views) const;
  at::Tensor with_ends(const at::Tensor& x_HWD) const;

  const PageSpec spec_;
  SamTower sam_;
  std::optional<VisionTower> clip_;
  std::vector<Layer> layers_;
  const Norm* last_norm_ = nullptr;
  std::vector<const Table*> queries_;
  const Linear* projector_;
  const Param *newline_ = nullptr, *separator_ = nullptr;
};

}  // namespace apus
