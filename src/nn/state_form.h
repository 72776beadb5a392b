// SPDX-License-Identifier: Apache-2.0
// Layers that keep a state of fixed size of each sequence, where attention keeps keys and values of all its tokens: as
// data. No tensor library here; nn/state_layer.h computes them.
#pragma once

#include <array>
#include <cstdint>
#include <variant>

namespace apus {

// What a layer keeps of the tokens before: keys and values of each, a state, or both side by side.
enum class Keeps { Tokens, State, Both };
constexpr bool keeps_tokens(Keeps k) { return k != Keeps::State; }
constexpr bool keeps_state(Keeps k) { return k != Keeps::Tokens; }

// A sequence's state in one layer: the last inputs of a convolution, [before, channels], and a matrix of each head,
// [heads, rows, columns].
struct StateShape {
  int64_t before = 0, channels = 0;
  int64_t heads = 0, rows = 0, columns = 0;
  int64_t numbers() const { return before * channels + heads * rows * columns; }
};

// Qwen3-Next's gated delta net: a value corrects what the state already holds under its key.
struct DeltaForm {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  // Tokens that the convolution looks at.
  int64_t taps = 0;
  // Qwen3.5: queries, keys and values; gates; shares; steps: a matrix each. Qwen3-Next has them key head by key head.
  bool apart = false;

  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return value_heads * value_dim; }
};

// Mamba-2: heads whose decay and share of each value depend on the token.
struct MambaForm {
  int64_t heads = 0, head_dim = 0, groups = 0, state = 0, taps = 0;
  bool conv_bias = true, in_bias = false, out_bias = false;
  enum class Norm { None, BehindGate, BeforeGate };
  Norm norm = Norm::BehindGate;
  // That are normalised apart from each other.
  int64_t norm_groups = 1;
  // The input, the result, and what in_proj makes of the input (gate, values, keys, queries, steps) are multiplied.
  double in_scale = 1, out_scale = 1;
  std::array<double, 5> part_scale = {1, 1, 1, 1, 1};

  int64_t inner() const { return heads * head_dim; }
  int64_t mixed() const { return inner() + 2 * groups * state; }
};

// MiniMax's lightning attention: every head forgets at a speed of its own, which is fixed.
struct LightningForm {
  int64_t heads = 0, head_dim = 0;
};

using StateForm = std::variant<DeltaForm, MambaForm, LightningForm>;

inline StateShape state_shape(const StateForm& form) {
  if (const auto* d = std::get_if<DeltaForm>(&form))
    return {d->taps - 1, 2 * d->keys() + d->values(), d->value_heads, d->key_dim, d->value_dim};
  if (const auto* m = std::get_if<MambaForm>(&form)) return {m->taps - 1, m->mixed(), m->heads, m->state, m->head_dim};
  const auto& l = std::get<LightningForm>(form);
  return {0, 0, l.heads, l.head_dim, l.head_dim};
}

// The layer's name in checkpoints.
inline const char* state_layer_name(const StateForm& form) {
  return std::holds_alternative<DeltaForm>(form)   ? "linear_attn"
         : std::holds_alternative<MambaForm>(form) ? "mamba"
                                                   : "self_attn";
}

}  // namespace apus
