// SPDX-License-Identifier: Apache-2.0
// The feed-forward's rarer activations against their formulas.
#include "nn/mlp.h"

#include <ATen/ops/erf.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>

#include <cmath>
#include <numbers>

#include "tests/ops/devices.h"

namespace apus::ops::test {
namespace {

at::Tensor formula(Activation act, const at::Tensor& x) {
  switch (act) {
    case Activation::Gelu:
      return x * (1 + at::erf(x / std::numbers::sqrt2)) / 2;
    case Activation::GeluTanh:
      return x * (1 + at::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x))) / 2;
    case Activation::Relu:
      return x.clamp_min(0);
    case Activation::Relu2:
      return x.clamp_min(0) * x.clamp_min(0);
    case Activation::Xielu:  // never a gate
    case Activation::Silu:
      break;
  }
  return at::silu(x);
}

class Gated : public OpTest {};

std::vector<at::ScalarType> types_of_models() {  // on the processor f16 is held as another type
  std::vector<at::ScalarType> out = dtypes();
  std::erase_if(out, [](at::ScalarType type) { return !device().kind->supports(type); });
  return out;
}

TEST_P(Gated, IsTheFormulaWithItsGradients) {
  for (const auto act : {Activation::Silu, Activation::Gelu, Activation::GeluTanh, Activation::Relu, Activation::Relu2})
    compare(
        [&](const Tensors& t) {  // both are slices of one product, as in a layer
          return Tensors{gated(act, t[0].narrow(1, 0, 24), t[0].narrow(1, 24, 24))};
        },
        [&](const Tensors& t) { return Tensors{formula(act, t[0].narrow(1, 0, 24)) * t[0].narrow(1, 24, 24)}; },
        {normal({7, 48}, 1, 2)}, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Ops, Gated, ::testing::ValuesIn(types_of_models()), dtype_of);

}  // namespace
}  // namespace apus::ops::test
