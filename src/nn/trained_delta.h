// SPDX-License-Identifier: Apache-2.0
// A change of a weight that is trained, saved as PEFT knows it, and merged. One kind, one file: lora, adalora, bone,
// boft. Its parameters carry the names that they have in PEFT's files.
#pragma once

#include <string>

#include "nn/linear.h"

namespace apus {

class TrainedDelta : public Delta {
 public:
  // First values, by --init_weights. Of LoRA they may be taken out of the layer's weight.
  virtual void begin(Adaptable& layer, const std::string& how, uint64_t seed, at::TensorOptions options) = 0;
  // For inference alone: the parameters in this type, and what is needed of the weight, once and for all.
  virtual void settle(const at::Tensor& weight, at::ScalarType type) = 0;
  // The rows [first, first + n) of the weight with the change, of those rows of the weight; f32.
  virtual at::Tensor merged_rows(const at::Tensor& rows, int64_t first) const = 0;
  at::Tensor merged(const at::Tensor& weight) const final { return merged_rows(weight, 0); }
  // The layer's bias with the change, f32. Undefined: it stays as it is.
  virtual at::Tensor merged_bias(const at::Tensor& /*bias*/) const { return {}; }
  virtual bool changes_bias() const { return false; }
  // Whether merged_rows() of a layer's bias, in its one dimension, is that bias with the change.
  virtual bool scales_outputs() const { return false; }
};

}  // namespace apus
