// SPDX-License-Identifier: Apache-2.0
#include "nn/norm.h"

#include "ops/ops.h"

namespace apus {

at::Tensor RmsNorm::operator()(const at::Tensor& x) const { return ops::rms_norm(x, weight_.data, eps_); }

std::tuple<at::Tensor, at::Tensor> RmsNorm::add(const at::Tensor& x, const at::Tensor& delta) const {
  return ops::add_rms_norm(x, delta, weight_.data, eps_);
}

}  // namespace apus
