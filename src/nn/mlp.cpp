// SPDX-License-Identifier: Apache-2.0
#include "nn/mlp.h"

#include "nn/kept.h"
#include "ops/ops.h"

namespace apus {

Mlp::Mlp(int64_t hidden, int64_t ffn, bool bias, bool only_added)
    : gate_(child<Linear>("gate_proj", Linear::Spec{.in = hidden, .out = ffn, .bias = bias, .split = Split::Out})),
      up_(child<Linear>("up_proj", Linear::Spec{.in = hidden, .out = ffn, .bias = bias, .split = Split::Out})),
      down_(child<Linear>("down_proj", Linear::Spec{.in = ffn, .out = hidden, .bias = bias, .split = Split::In})),
      gate_up_({&gate_, &up_}),
      only_added_(only_added) {}

at::Tensor Mlp::operator()(const at::Tensor& x_TD, const Step& s) const {
  const auto gate_up = [&] {
    const Kept::Only part(s, &KeptParts::feed_forward);
    return gate_up_(x_TD, s);
  }();
  return down_(ops::swiglu(gate_up[0], gate_up[1]), s, only_added_);
}

}  // namespace apus
