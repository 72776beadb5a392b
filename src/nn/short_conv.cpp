// SPDX-License-Identifier: Apache-2.0
#include "nn/short_conv.h"

#include <ATen/TensorOperators.h>

namespace apus {

ShortConv::ShortConv(const ConvForm& f, const Place& place)
    : StateLayer(place),
      conv_(child<CausalConv>("conv", place.layer, f.width, f.taps, f.bias, /*silu=*/false)),
      in_(child<Linear>("in_proj", Linear::Spec{.in = place.hidden, .out = 3 * f.width, .bias = f.bias})),
      out_(child<Linear>("out_proj", Linear::Spec{.in = f.width, .out = place.hidden, .bias = f.bias})) {}

at::Tensor ShortConv::operator()(const at::Tensor& x_TD, const Step& s) const {
  const auto made = widened(in_(x_TD, s)).chunk(3, 1);  // a gate before, a gate behind, values
  return out_((made[1] * conv_(made[0] * made[2], s)).to(x_TD.scalar_type()), s);
}

}  // namespace apus
