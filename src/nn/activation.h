// SPDX-License-Identifier: Apache-2.0
// What a feed-forward is made of. No tensor library here; nn/mlp.h computes it.
#pragma once

namespace apus {

// What is applied to the gate, nearly always silu.
enum class Activation { Silu, Gelu, GeluTanh, Relu };

// Gated: down_proj(act(gate_proj x) * up_proj x). FusedGate: the same, gate and up being one matrix, gate_up_proj.
// Plain: c_proj(act(c_fc x)).
enum class FeedForwardKind { Gated, FusedGate, Plain };

// Where they are called otherwise: what reads the input first, up being of Gated alone. Null: the usual.
struct FeedForwardNames {
  const char *in = nullptr, *up = nullptr, *down = nullptr;
};
constexpr FeedForwardNames named(FeedForwardKind kind, const FeedForwardNames& names) {
  const bool plain = kind == FeedForwardKind::Plain;
  const char* const in = kind == FeedForwardKind::Gated ? "gate_proj" : plain ? "c_fc" : "gate_up_proj";
  return {names.in ? names.in : in, names.up ? names.up : "up_proj",
          names.down ? names.down
          : plain    ? "c_proj"
                     : "down_proj"};
}

}  // namespace apus
