// SPDX-License-Identifier: Apache-2.0
#include "nn/bottleneck.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>

#include <cmath>

#include "base/random.h"
#include "tensor/noise.h"

namespace apus {
namespace {

at::Tensor after_act(const at::Tensor& x, const std::string& act) {
  if (act == "relu") return at::relu(x);
  if (act == "silu") return at::silu(x);
  if (act == "tanh") return at::tanh(x);
  return at::gelu(x, act == "gelu" ? "none" : "tanh");
}

}  // namespace

Bottleneck::Bottleneck(Spec spec)
    : spec_(std::move(spec)),
      in_(param("linear1.weight", {spec_.length, spec_.out})),
      in_bias_(param("linear1.bias", {spec_.length})),
      out_(param("linear2.weight", {spec_.out, spec_.length})),
      out_bias_(param("linear2.bias", {spec_.out})) {}

at::Tensor Bottleneck::apply(const at::Tensor& /*x_TI*/, const at::Tensor& y_TO, const at::Tensor& /*weight*/,
                             const Step&, Memo* /*memo*/) const {
  const auto type = y_TO.scalar_type();
  const at::Tensor inner = after_act(at::addmm(in_bias_.data.to(type), y_TO, in_.data.to(type).t()), spec_.act);
  return y_TO + at::addmm(out_bias_.data.to(type), inner, out_.data.to(type).t());
}

at::Tensor Bottleneck::merged_rows(const at::Tensor& /*rows*/, int64_t /*first*/) const {
  fail(Fault::Usage,
       "a bottleneck behind a layer is no change of its weight and cannot be merged: use it as it is "
       "(--adapters)");
}

std::pair<at::Tensor, at::Tensor> Bottleneck::columns(const at::Tensor& /*x_TI*/, const Step&) const {
  fail(Fault::Bug, "a bottleneck is no product of low rank");
}

// Xavier's rule for the matrices; biases that are nearly zero.
void Bottleneck::begin(Adaptable& /*layer*/, const std::string& /*how*/, uint64_t seed, at::TensorOptions options) {
  const double bound = std::sqrt(6 / static_cast<double>(spec_.length + spec_.out));
  uint64_t which = 0;
  for (Param* matrix : {&in_, &out_})
    matrix->data = uniform_noise(matrix->full, -bound, bound, mix(seed, spec_.id, ++which), at::kCPU).to(options);
  for (Param* bias : {&in_bias_, &out_bias_})
    bias->data = normal_noise(bias->full, 0, 1e-6, mix(seed, spec_.id, ++which)).to(options);
}

void Bottleneck::settle(const at::Tensor& /*weight*/, at::ScalarType type) {
  for (Param* p : {&in_, &in_bias_, &out_, &out_bias_}) p->data = p->data.to(type);
}

}  // namespace apus
