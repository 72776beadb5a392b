// SPDX-License-Identifier: Apache-2.0
#include "nn/bone.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "base/random.h"
#include "tensor/noise.h"

namespace apus {
namespace {

int64_t bone_shards(const Bone::Spec& spec) { return (spec.in + spec.rank - 1) / spec.rank; }

}  // namespace

Bone::Bone(Spec spec) : spec_(spec), block_(param(spec.old_name ? "bone_block" : "miss_block", {spec.rank, spec.out})) {
  require(spec.rank > 0, Fault::Usage, "the rank of Bone must be above 0, it is ", spec.rank);
}

at::Tensor Bone::folded(const at::Tensor& x_TI) const {
  const int64_t missing = bone_shards(spec_) * spec_.rank - spec_.in;
  const at::Tensor x = missing == 0 ? x_TI : at::constant_pad_nd(x_TI, {0, missing});
  return x.reshape({x.size(0), -1, spec_.rank}).sum(1);
}

at::Tensor Bone::apply(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& /*weight*/, const Step&,
                       Memo* /*memo*/) const {
  return at::addmm(y_TO, folded(x_TI), block_.data.to(y_TO.scalar_type()));
}

std::pair<at::Tensor, at::Tensor> Bone::columns(const at::Tensor& x_TI, const Step&) const {
  return {folded(x_TI), block_.data.to(x_TI.scalar_type()).t()};
}

at::Tensor Bone::merged_rows(const at::Tensor& rows, int64_t first) const {
  at::NoGradGuard no_grad;
  const at::Tensor block = block_.data.to(at::kFloat).narrow(1, first, rows.size(0)).t();
  return rows.to(at::kFloat) + block.repeat({1, bone_shards(spec_)}).narrow(1, 0, spec_.in);
}

void Bone::begin(Adaptable& /*layer*/, const std::string& how, uint64_t seed, at::TensorOptions options) {
  const double bound = 1 / std::sqrt(static_cast<double>(spec_.out));
  block_.data = how == "false" ? uniform_noise(block_.full, -bound, bound, mix(seed, spec_.id, 1), at::kCPU).to(options)
                               : at::zeros(block_.full, options);
}

void Bone::settle(const at::Tensor& /*weight*/, at::ScalarType type) { block_.data = block_.data.to(type); }

}  // namespace apus
