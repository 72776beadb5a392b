// SPDX-License-Identifier: Apache-2.0
// What a feed-forward applies to its gate, nearly always silu. No tensor library here; nn/mlp.h computes them.
#pragma once

namespace apus {

enum class Activation { Silu, Gelu, GeluTanh, Relu };

}  // namespace apus
