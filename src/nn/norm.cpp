// SPDX-License-Identifier: Apache-2.0
#include "nn/norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/layer_norm.h>

#include "ops/ops.h"

namespace apus {

Norm::Norm(int64_t size, NormSpec spec) : spec_(spec), weight_(param("weight", {size})) {
  if (spec.kind == NormKind::MeanAndBias) bias_ = &param("bias", {size});
}

// The rarer kinds are computed in f32 from widened weights: 1 + w would lose w's last bits in bf16.
at::Tensor Norm::operator()(const at::Tensor& x) const {
  // Layers with a state compute in f32 whatever the weights are: not every device's norm takes two types.
  const bool wider = x.scalar_type() == at::kFloat && weight_.data.scalar_type() != at::kFloat;
  if (spec_.kind == NormKind::Rms)
    return ops::rms_norm(x, wider ? weight_.data.to(at::kFloat) : weight_.data, spec_.eps);
  const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor weight = weight_.data.to(wide), input = x.to(wide);
  const at::Tensor y =
      spec_.kind == NormKind::RmsFromOne
          ? ops::rms_norm(input, weight + 1, spec_.eps)
          : at::layer_norm(input, {x.size(-1)}, weight, bias_ ? bias_->data.to(wide) : at::Tensor(), spec_.eps);
  return y.to(x.scalar_type());
}

std::tuple<at::Tensor, at::Tensor> Norm::add(const at::Tensor& x, const at::Tensor& delta) const {
  if (spec_.kind == NormKind::Rms) return ops::add_rms_norm(x, delta, weight_.data, spec_.eps);
  at::Tensor sum = x + delta, normed = (*this)(sum);
  return {std::move(sum), std::move(normed)};
}

}  // namespace apus
