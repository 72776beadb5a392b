// SPDX-License-Identifier: Apache-2.0
// What a feed-forward is made of. No tensor library here; nn/mlp.h computes it.
#pragma once

namespace apus {

// What is applied to the gate, nearly always silu. Relu2: the square of relu. Xielu has two learnt numbers a layer
// (nn/mlp.h). Tanh: of heads.
enum class Activation { Silu, Gelu, GeluTanh, Relu, Relu2, Xielu, Tanh };

// Gated: down_proj(act(gate_proj x) * up_proj x). FusedGate: the same, gate and up being one matrix, gate_up_proj.
// Plain: c_proj(act(c_fc x)).
enum class FeedForwardKind { Gated, FusedGate, Plain };

// What some families call the matrices; null: the usual name. `up` is gate and up of FusedGate, c_fc of Plain.
struct FeedForwardNames {
  const char *gate = nullptr, *up = nullptr, *down = nullptr;
};
constexpr FeedForwardNames named(FeedForwardKind kind, const FeedForwardNames& own) {
  const bool plain = kind == FeedForwardKind::Plain;
  return {own.gate ? own.gate : "gate_proj",
          own.up                           ? own.up
          : kind == FeedForwardKind::Gated ? "up_proj"
          : plain                          ? "c_fc"
                                           : "gate_up_proj",
          own.down ? own.down
          : plain  ? "c_proj"
                   : "down_proj"};
}

}  // namespace apus
