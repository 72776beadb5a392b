// SPDX-License-Identifier: Apache-2.0
// SAM's tower: square pictures in patches, which see each other in windows or all of them, nearer ones otherwise than
// farther ones by what is learnt of distances; and convolutions that leave a sixteenth of the rows.
#pragma once

#include <functional>
#include <vector>

#include "models/spec/page_spec.h"
#include "models/towers/parts.h"
#include "nn/step.h"

namespace apus {

class SamTower {
 public:
  // `parts` hold its modules, and live as long.
  SamTower(const SamSpec& spec, const TowerParts& parts);
  // Patches of pictures of `side` patches a side, line by line -> [pictures, h, h, out]. `step_of` and `again` are a
  // VisionTower's.
  using StepOf = std::function<Step(int64_t rows)>;
  at::Tensor operator()(const at::Tensor& patch_NP, int64_t side, const StepOf& step_of, bool again) const;
  const at::Tensor& numbers_like() const { return patches_->weight(); }

 private:
  struct Block {
    const Norm *norm1, *norm2;
    const Linear *qkv, *proj, *up, *down;
    const Param *of_lines, *of_columns;  // what is learnt of distances; null: nothing
    int64_t window;                      // 0: all of a picture
  };
  at::Tensor placed(const at::Tensor& x_BHWD) const;
  at::Tensor through(const Block& block, const at::Tensor& x_BHWD, const Step& s) const;
  at::Tensor attended(const Block& block, const at::Tensor& x_BHWD, const Step& s) const;

  const SamSpec spec_;
  const Table* patches_;
  const Param* positions_ = nullptr;
  std::vector<Block> blocks_;
  const Table *neck_, *neck_wide_, *narrow_, *narrower_;
  const Norm *neck_norm_, *neck_end_;
};

}  // namespace apus
