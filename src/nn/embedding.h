// SPDX-License-Identifier: Apache-2.0
// Token ids to vectors.
#pragma once

#include "nn/module.h"
#include "ops/ops.h"

namespace apus {

class Embedding : public Module {
 public:
  Embedding(int64_t count, int64_t size) : weight_(param("weight", {count, size}, {{Axis::Tp, 0}})) {}
  at::Tensor operator()(const at::Tensor& id_T) const { return ops::embedding(id_T, weight_.data); }
  const Param& weight() const { return weight_; }

 private:
  Param& weight_;
};

}  // namespace apus
