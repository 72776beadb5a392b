// SPDX-License-Identifier: Apache-2.0
// A bottleneck behind a layer (Houlsby's adapter): y' = y + W2 act(W1 y + b1) + b2. It is no change of the weight, so
// it cannot be merged.
#pragma once

#include <string>
#include <vector>

#include "nn/trained_delta.h"

namespace apus {

class Bottleneck final : public TrainedDelta {
 public:
  struct Spec {
    int64_t out, length;  // of the layer; of the bottleneck
    std::string act = "gelu";
    uint64_t id = 0;  // of its first values
  };
  explicit Bottleneck(Spec spec);

  at::Tensor apply(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& weight, const Step& s,
                   Memo* memo = nullptr) const override;
  bool looks_at_weight() const override { return false; }
  at::Tensor merged_rows(const at::Tensor& rows, int64_t first) const override;
  std::pair<at::Tensor, at::Tensor> columns(const at::Tensor& x_TI, const Step& s) const override;
  void begin(Adaptable& layer, const std::string& how, uint64_t seed, at::TensorOptions options) override;
  void settle(const at::Tensor& weight, at::ScalarType type) override;

 private:
  Spec spec_;
  Param &in_, &in_bias_, &out_, &out_bias_;  // [length, out], [length], [out, length], [out]
};

}  // namespace apus
