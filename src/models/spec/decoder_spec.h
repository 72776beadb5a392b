// SPDX-License-Identifier: Apache-2.0
// A decoder as data, without the tensor library: what its config.json means. The model's modules (models/decoder), the
// plan's list of parameters (plan/model_facts) and the table of families are all made from it.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "nn/activation.h"
#include "nn/rope_spec.h"

namespace apus {

struct ModelShape {
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;
  // The context the checkpoint was made for.
  int64_t max_positions = 0;
  // Of the layers that are mixtures; 0: there are none.
  int64_t experts = 0, experts_per_token = 0;
};

// The feed-forward of one layer: the plain gated block,
struct DenseSpec {
  int64_t ffn = 0;
  bool bias = false;
};
// or a router and experts.
struct MixtureSpec {
  int64_t experts = 0, per_token = 0, ffn = 0;
  // Above 0: an expert of this width for every token, scaled by a sigmoid gate.
  int64_t shared_ffn = 0;
  // The weights of the chosen experts sum to 1.
  bool normalise = false;
};
using FeedForwardSpec = std::variant<DenseSpec, MixtureSpec>;

// What is computed from the last hidden state: the scores of all tokens; numbers that rate the text; nothing, for models
// whose hidden state itself is wanted.
enum class Head { Vocab, Scalar, None };

struct DecoderSpec {
  ModelShape shape;
  // The name of everything but the head, in the checkpoint.
  std::string backbone = "model";
  Head head = Head::Vocab;
  // How many numbers a scalar head gives.
  int64_t labels = 0;
  // The token that fills up texts in other programs: a scalar head passes over those at a text's end. -1: there is none.
  int64_t pad = -1;
  double eps = 1e-6;
  bool tied = false, qkv_bias = false, out_bias = false, qk_norm = false;
  RopeSpec rope;
  Activation act = Activation::Silu;
  // Per layer: how far it looks back; 0: as far as the text goes.
  std::vector<int64_t> window;
  // Per layer.
  std::vector<FeedForwardSpec> feed_forward;
};

}  // namespace apus
