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
  Param *weight_ = nullptr, *bias_ = nullptr;  // null where the kind has none
};

// x / rms(x) over the last dimension, in the type of x, without weights.
at::Tensor rms_alone(const at::Tensor& x, double eps);

// Weights over the whole vector, of which each of `groups` equal parts is brought to one size for itself. At least in
// f32, as layers with a state compute.
class GroupNorm : public Module {
 public:
  GroupNorm(int64_t size, int64_t groups, double eps);
  at::Tensor operator()(const at::Tensor& x_TD) const;

 private:
  const int64_t groups_;
  const double eps_;
  Param& weight_;
};

// Each head's own norm, over its numbers. Weights of all heads are one tensor, or stand as norms.0, norms.1, ...
class HeadNorms : public Module {
 public:
  HeadNorms(int64_t heads, int64_t size, NormSpec spec, bool apart);
  at::Tensor operator()(const at::Tensor& x_TNH) const;

 private:
  NormSpec spec_;
  Param* weight_NH_ = nullptr;
  std::vector<Param*> weights_H_;
};

}  // namespace apus
