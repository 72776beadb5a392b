// SPDX-License-Identifier: Apache-2.0
// Normalisation with a learned scale over the last dimension.
#pragma once

#include <tuple>

#include "nn/module.h"
#include "nn/norm_kind.h"

namespace apus {

class Norm : public Module {
 public:
  Norm(int64_t size, NormSpec spec);
  at::Tensor operator()(const at::Tensor& x) const;
  // {x + delta, norm(x + delta)}: where it is the plain kind, in one pass over memory.
  std::tuple<at::Tensor, at::Tensor> add(const at::Tensor& x, const at::Tensor& delta) const;

 private:
  NormSpec spec_;
  Param& weight_;
  Param* bias_ = nullptr;
};

}  // namespace apus
