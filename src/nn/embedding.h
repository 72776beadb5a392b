// SPDX-License-Identifier: Apache-2.0
// Token ids to vectors.
#pragma once

#include "base/files.h"
#include "nn/linear.h"
#include "ops/ops.h"

namespace apus {

class Embedding : public Adaptable {
 public:
  Embedding(int64_t count, int64_t size) : weight_(param("weight", {count, size}, {{Axis::Tp, 0}})) {}

  at::Tensor operator()(const at::Tensor& id_T, const Step& s) const {
    const at::Tensor x_TD = ops::embedding(id_T, weight_.data);
    // A mapped table is read where it lies, a row here and there; the system maps many pages around each row. Given
    // back at once, the table costs no memory beside the file's cache.
    if (inference_ && weight_.mapped)
      forget_mapped(weight_.data.data_ptr(), static_cast<int64_t>(weight_.data.nbytes()));
    return with_adapters(id_T, x_TD, weight_.data, s);
  }
  void prepare_inference() override { inference_ = true; }
  Sides sides() const override { return {weight_.full[0], weight_.full[1], /*looks_up=*/true}; }
  Param& weight() override { return weight_; }

 private:
  Param& weight_;
  bool inference_ = false;
};

}  // namespace apus
