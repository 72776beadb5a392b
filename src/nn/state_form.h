// SPDX-License-Identifier: Apache-2.0
// Layers that keep a state of fixed size of each sequence, where attention keeps keys and values of all its tokens: as
// data. No tensor library here; nn/state_layer.h computes them.
#pragma once

#include <array>
#include <cstdint>
#include <variant>
#include <vector>

#include "nn/activation.h"

namespace apus {

// What a layer keeps of the tokens before: keys and values of each, a state, or both side by side. Nothing: it is a
// feed-forward alone.
enum class Keeps { Tokens, State, Both, Nothing };
constexpr bool keeps_tokens(Keeps k) { return k == Keeps::Tokens || k == Keeps::Both; }
constexpr bool keeps_state(Keeps k) { return k == Keeps::State || k == Keeps::Both; }

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
  // OLMo Hybrid: a matrix and a convolution for each of queries, keys and values. Its shares go up to two.
  bool all_apart = false;
  double share_scale = 1;

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
  // A token's step is no shorter.
  double least_step = 0;

  int64_t inner() const { return heads * head_dim; }
  int64_t mixed() const { return inner() + 2 * groups * state; }
};

// MiniMax's lightning attention: every head forgets at a speed of its own, which is fixed.
struct LightningForm {
  int64_t heads = 0, head_dim = 0;
  // How fast each head forgets in the first layer; later layers forget slower, by their share of all layers but one and
  // so many more.
  std::vector<double> slopes = {};
  double more_layers = 0;
};

// Ling 2.5's lightning attention: queries and keys are normalised head by head and turn with their position, and the
// result is normalised in groups.
struct TurnedLightningForm {
  int64_t heads = 0, head_dim = 0;
  // How fast each head forgets in the layer behind the first; later layers forget slower.
  std::vector<double> slopes = {};
  int64_t norm_groups = 1;
  bool qk_norm = true, qkv_bias = false, out_bias = false;
  int64_t width() const { return heads * head_dim; }
};

// Mamba: every channel has a sum of its own for each number of the state, and their decays differ.
struct SelectiveForm {
  int64_t inner = 0, state = 0, rank = 0, taps = 0;
  bool conv_bias = true, bias = false;
  // Whether steps, keys and queries are normalised: by norms with weights, or without.
  enum class Norm { None, Weighed, Plain };
  Norm norm = Norm::None;
  double eps = 1e-6;
};

// LFM2: a convolution over the product of two things made of the input, times a third.
struct ConvForm {
  int64_t width = 0, taps = 0;
  bool bias = false;
};

// Kimi's delta attention: a gated delta net in which every number of a key has a decay of its own.
struct KimiDeltaForm {
  int64_t heads = 0, head_dim = 0, taps = 0;
  // Ling 3.0: steps and gates are a matrix each instead of two small ones, and a head's speed is a number alone.
  bool at_once = false;
  // Below 0: a decay is no stronger, being this times a sigmoid; 0: it is by softplus.
  double strongest = 0;
  int64_t width() const { return heads * head_dim; }
};

// RecurrentGemma: every channel fades at a speed that depends on the token, and takes in the more the more it fades.
struct FadingForm {
  // Blocks of channels whose gates are matrices of their own.
  int64_t width = 0, blocks = 0, taps = 0;
  Activation act = Activation::GeluTanh;
};

using StateForm = std::variant<DeltaForm, MambaForm, LightningForm, TurnedLightningForm, SelectiveForm, ConvForm,
                               KimiDeltaForm, FadingForm>;

inline StateShape state_shape(const StateForm& form) {
  if (const auto* d = std::get_if<DeltaForm>(&form))
    return {d->taps - 1, 2 * d->keys() + d->values(), d->value_heads, d->key_dim, d->value_dim};
  if (const auto* m = std::get_if<MambaForm>(&form)) return {m->taps - 1, m->mixed(), m->heads, m->state, m->head_dim};
  if (const auto* s = std::get_if<SelectiveForm>(&form)) return {s->taps - 1, s->inner, s->inner, s->state, 1};
  if (const auto* c = std::get_if<ConvForm>(&form)) return {c->taps - 1, c->width, 0, 0, 0};
  if (const auto* d = std::get_if<KimiDeltaForm>(&form))
    return {d->taps - 1, 3 * d->width(), d->heads, d->head_dim, d->head_dim};
  if (const auto* f = std::get_if<FadingForm>(&form)) return {f->taps - 1, f->width, f->width, 1, 1};
  if (const auto* t = std::get_if<TurnedLightningForm>(&form)) return {0, 0, t->heads, t->head_dim, t->head_dim};
  const auto& l = std::get<LightningForm>(form);
  return {0, 0, l.heads, l.head_dim, l.head_dim};
}

// The layer's name in checkpoints.
inline const char* state_layer_name(const StateForm& form) {
  if (std::holds_alternative<DeltaForm>(form)) return "linear_attn";
  if (std::holds_alternative<ConvForm>(form)) return "conv";
  if (std::holds_alternative<FadingForm>(form)) return "temporal_block";
  return std::holds_alternative<MambaForm>(form) || std::holds_alternative<SelectiveForm>(form) ? "mamba" : "self_attn";
}

}  // namespace apus
