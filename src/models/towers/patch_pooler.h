// SPDX-License-Identifier: Apache-2.0
// What makes one row of the patches of a small square: attention that asks by their mean, and a gated feed-forward.
// Which patches these are the medium says (MediaContent::pooled).
#pragma once

#include <functional>
#include <vector>

#include "media/media_item.h"
#include "models/spec/seeing_spec.h"
#include "models/towers/parts.h"
#include "nn/step.h"

namespace apus {

class PatchPooler {
 public:
  // `parts` hold its modules, and live as long.
  PatchPooler(const VisionSpec& spec, const TowerParts& parts);
  // Rows of the patches of all media, one medium behind the other -> rows of the decoder's width.
  at::Tensor operator()(const at::Tensor& patch_ND, const std::vector<const MediaContent*>& media,
                        const std::function<Step(int64_t rows)>& step_of) const;

 private:
  at::Tensor attended(const at::Tensor& patch_MPD, const at::Tensor& there_MP,
                      const std::function<Step(int64_t rows)>& step_of) const;

  const PoolerForm form_;
  const Linear *q_, *k_, *v_, *out_, *gate_, *up_, *down_;
};

}  // namespace apus
