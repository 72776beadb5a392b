// SPDX-License-Identifier: Apache-2.0
#include "nn/norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>

#include "base/error.h"
#include "ops/ops.h"

namespace apus {

at::Tensor rms_alone(const at::Tensor& x, double eps) {
  return ops::rms_norm(x, at::ones({x.size(-1)}, x.options()), eps);
}

namespace {
at::Tensor wide_norm(const at::Tensor& x, const NormSpec& spec, const at::Tensor& weight, const at::Tensor& bias) {
  if (takes_mean_off(spec.kind)) return at::layer_norm(x, {x.size(-1)}, weight, bias, spec.eps);
  return weight.defined() ? ops::rms_norm(x, weight, spec.eps) : rms_alone(x, spec.eps);
}
}  // namespace

Norm::Norm(int64_t size, NormSpec spec) : spec_(spec) {
  if (has_weight(spec.kind)) weight_ = &param("weight", {size});
  if (has_bias(spec.kind)) bias_ = &param("bias", {size});
}

// The rarer kinds are computed in f32 from widened weights: 1 + w would lose w's last bits in bf16.
at::Tensor Norm::operator()(const at::Tensor& x) const {
  if (spec_.kind == NormKind::Rms) {
    // Layers with a state compute in f32 whatever the weights are: not every device's norm takes two types.
    const bool wider = x.scalar_type() == at::kFloat && weight_->data.scalar_type() != at::kFloat;
    return ops::rms_norm(x, wider ? weight_->data.to(at::kFloat) : weight_->data, spec_.eps);
  }
  const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor weight = weight_ ? weight_->data.to(wide) : at::Tensor();
  if (counts_from_one(spec_.kind)) weight = weight + 1;
  return wide_norm(x.to(wide), spec_, weight, bias_ ? bias_->data.to(wide) : at::Tensor()).to(x.scalar_type());
}

std::tuple<at::Tensor, at::Tensor> Norm::add(const at::Tensor& x, const at::Tensor& delta) const {
  if (spec_.kind == NormKind::Rms) return ops::add_rms_norm(x, delta, weight_->data, spec_.eps);
  at::Tensor sum = x + delta, normed = (*this)(sum);
  return {std::move(sum), std::move(normed)};
}

GroupNorm::GroupNorm(int64_t size, int64_t groups, double eps)
    : groups_(groups), eps_(eps), weight_(param("weight", {size})) {}

at::Tensor GroupNorm::operator()(const at::Tensor& x_TD) const {
  const int64_t tokens = x_TD.size(0);
  const auto wide = x_TD.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor parts = x_TD.to(wide).reshape({tokens * groups_, x_TD.size(1) / groups_});
  return rms_alone(parts, eps_).view({tokens, -1}) * weight_.data.to(wide);
}

HeadNorms::HeadNorms(int64_t heads, int64_t size, NormSpec spec, bool apart) : spec_(spec) {
  if (!apart) weight_NH_ = &param("weight", {heads, size});
  for (int64_t i = 0; apart && i < heads; ++i) weights_H_.push_back(&param(str("norms.", i, ".weight"), {size}));
}

at::Tensor HeadNorms::operator()(const at::Tensor& x_TNH) const {
  const auto wide = x_TNH.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  std::vector<at::Tensor> each;
  for (const Param* weight : weights_H_) each.push_back(weight->data);
  const at::Tensor weight_NH = (weight_NH_ ? weight_NH_->data : at::stack(each)).to(wide);
  return (wide_norm(x_TNH.to(wide), spec_, {}, {}) * weight_NH).to(x_TNH.scalar_type());
}

}  // namespace apus
