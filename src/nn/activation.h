// SPDX-License-Identifier: Apache-2.0
// What a feed-forward is made of. No tensor library here; nn/mlp.h computes it.
#pragma once

namespace apus {

// What is applied to the gate, nearly always silu.
enum class Activation { Silu, Gelu, GeluTanh, Relu };

// Gated: down_proj(act(gate_proj x) * up_proj x). FusedGate: the same, gate and up being one matrix, gate_up_proj.
// Plain: c_proj(act(c_fc x)).
enum class FeedForwardKind { Gated, FusedGate, Plain };

}  // namespace apus
