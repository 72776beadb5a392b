// SPDX-License-Identifier: Apache-2.0
#include "nn/rescale.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>

#include "base/random.h"
#include "ops/ops.h"
#include "tensor/noise.h"

namespace apus {

Rescale::Rescale(Spec spec, const Param* bias)
    : spec_(spec),
      bias_(bias),
      factor_(param("ia3_l", spec.inputs ? std::vector<int64_t>{1, spec.in} : std::vector<int64_t>{spec.out, 1})) {}

at::Tensor Rescale::apply(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& weight, const Step&,
                          Memo* /*memo*/) const {
  const at::Tensor factor = factor_.data.flatten();
  if (!spec_.inputs) return (y_TO * factor).to(y_TO.scalar_type());
  const at::Tensor y = ops::linear((x_TI * factor).to(x_TI.scalar_type()), weight, {});
  return bias_ ? y + bias_->data : y;
}

std::pair<at::Tensor, at::Tensor> Rescale::columns(const at::Tensor& /*x_TI*/, const Step&) const {
  fail(Fault::Bug, "a factor for each number is no product of low rank");
}

// Rows of a weight, or of a bias.
at::Tensor Rescale::merged_rows(const at::Tensor& rows, int64_t first) const {
  at::NoGradGuard no_grad;
  const at::Tensor factor = factor_.data.to(at::kFloat);
  if (spec_.inputs) return rows.to(at::kFloat) * factor;
  const at::Tensor own = factor.narrow(0, first, rows.size(0));
  return rows.to(at::kFloat) * (rows.dim() == 1 ? own.squeeze(1) : own);
}

at::Tensor Rescale::merged_bias(const at::Tensor& bias) const { return merged_rows(bias, 0); }

void Rescale::begin(Adaptable& /*layer*/, const std::string& how, uint64_t seed, at::TensorOptions options) {
  factor_.data = how == "false" ? normal_noise(factor_.full, 0, 1, mix(seed, spec_.id, 1)).to(options)
                                : at::ones(factor_.full, options);
}

void Rescale::settle(const at::Tensor& /*weight*/, at::ScalarType type) { factor_.data = factor_.data.to(type); }

}  // namespace apus
