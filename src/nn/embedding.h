// SPDX-License-Identifier: Apache-2.0
// Token ids to vectors.
#pragma once

#include "base/files.h"
#include "nn/module.h"
#include "ops/ops.h"

namespace apus {

class Embedding : public Module {
 public:
  Embedding(int64_t count, int64_t size) : weight_(param("weight", {count, size}, {{Axis::Tp, 0}})) {}

  at::Tensor operator()(const at::Tensor& id_T) const {
    const at::Tensor x_TD = ops::embedding(id_T, weight_.data);
    // A mapped table is read where it lies, a row here and there; the system maps many pages around each row. Given back at
    // once, the table costs no memory beside the file's cache.
    if (inference_ && weight_.mapped) forget_mapped(weight_.data.data_ptr(), static_cast<int64_t>(weight_.data.nbytes()));
    return x_TD;
  }
  void prepare_inference() override { inference_ = true; }
  const Param& weight() const { return weight_; }

 private:
  Param& weight_;
  bool inference_ = false;
};

}  // namespace apus
