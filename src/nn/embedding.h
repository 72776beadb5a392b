// SPDX-License-Identifier: Apache-2.0
// Token ids to vectors.
#pragma once

#include "nn/linear.h"
#include "ops/ops.h"

namespace apus {

class Embedding : public Adaptable {
 public:
  Embedding(int64_t count, int64_t size) : weight_(param("weight", {count, size}, {{Axis::Tp, 0}})) {}

  at::Tensor operator()(const at::Tensor& id_T, const Step& s) const {
    return with_adapters(id_T, ops::embedding(id_T, weight_.data), weight_.data, s);
  }
  Sides sides() const override { return {weight_.full[0], weight_.full[1], /*looks_up=*/true}; }
  Param& weight() override { return weight_; }

 private:
  Param& weight_;
};

}  // namespace apus
