// SPDX-License-Identifier: Apache-2.0
// RMS normalisation with a learned scale.
#pragma once

#include <tuple>

#include "nn/module.h"

namespace apus {

class RmsNorm : public Module {
 public:
  RmsNorm(int64_t size, double eps) : eps_(eps), weight_(param("weight", {size})) {}
  at::Tensor operator()(const at::Tensor& x) const;
  // {x + delta, norm(x + delta)} in one pass over memory
  std::tuple<at::Tensor, at::Tensor> add(const at::Tensor& x, const at::Tensor& delta) const;

 private:
  double eps_;
  Param& weight_;
};

}  // namespace apus
