// SPDX-License-Identifier: Apache-2.0
// IA3: a factor for each output of a layer; or, in feed-forwards, for each input: y' = l * y, or y' = W (l * x) + b.
#pragma once

#include "nn/trained_delta.h"

namespace apus {

class Rescale final : public TrainedDelta {
 public:
  struct Spec {
    int64_t in, out;
    bool inputs = false;
    uint64_t id = 0;  // of its first values
  };
  // bias: of the layer, which is scaled with its outputs; null when there is none.
  Rescale(Spec spec, const Param* bias);

  at::Tensor apply(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& weight, const Step& s,
                   Memo* memo = nullptr) const override;
  bool looks_at_weight() const override { return spec_.inputs; }
  at::Tensor merged_rows(const at::Tensor& rows, int64_t first) const override;
  at::Tensor merged_bias(const at::Tensor& bias) const override;
  bool changes_bias() const override { return bias_ && !spec_.inputs; }
  bool scales_outputs() const override { return !spec_.inputs; }
  std::pair<at::Tensor, at::Tensor> columns(const at::Tensor& x_TI, const Step& s) const override;
  void begin(Adaptable& layer, const std::string& how, uint64_t seed, at::TensorOptions options) override;
  void settle(const at::Tensor& weight, at::ScalarType type) override;

 private:
  Spec spec_;
  const Param* bias_;
  Param& factor_;  // [out, 1], or [1, in]
};

}  // namespace apus
