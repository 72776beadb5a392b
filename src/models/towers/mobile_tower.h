// SPDX-License-Identifier: Apache-2.0
// The tower of models that see by a MobileNet-V5 (models/spec/mobile_spec.h): from pictures to the decoder's rows that
// stand for them.
#pragma once

#include <functional>

#include "models/spec/mobile_spec.h"
#include "models/towers/embedder.h"

namespace apus {

class MobileTower {
 public:
  // `parts` hold its modules, and live as long.
  MobileTower(const MobileSpec& spec, const TowerParts& parts);
  const at::Tensor& numbers_like() const { return stem_.weight->weight(); }
  // Pictures [1, 3, height, width] in the tower's dtype and on its device; their rows, one picture behind the other.
  // `step_of`: the step for so many rows. `again`: blocks run again in the backward pass.
  using StepOf = std::function<Step(int64_t rows)>;
  at::Tensor operator()(const std::vector<at::Tensor>& pictures, const StepOf& step_of, bool again = false) const;

 private:
  // A convolution and the norm behind it; null: there is none.
  struct Part {
    const Table* weight = nullptr;
    const Norm* norm = nullptr;
  };
  struct Keys {
    Part narrow;  // of key_step above 1
    const Table* matrix = nullptr;
  };
  struct Block {
    MobileBlock form;
    Part before, wider, among, narrower, behind;
    const Norm* norm = nullptr;
    const Table *query = nullptr, *out = nullptr;
    Keys keys, values;
    const Param* scale = nullptr;
  };
  Block block(const MobileBlock& form, const std::string& name, const TowerParts& parts) const;
  at::Tensor through(const Block& block, const at::Tensor& x_BHWC) const;
  at::Tensor attended(const Block& block, const at::Tensor& x_BHWC) const;
  at::Tensor fused(const at::Tensor& finer_BHWC, const at::Tensor& coarser_BHWC) const;

  const MobileSpec spec_;
  Part stem_;
  std::vector<std::vector<Block>> stages_;
  Part fused_wider_, fused_narrower_;
  const Norm* norm_;
  Embedder embedder_;
};

}  // namespace apus
