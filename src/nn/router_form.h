// SPDX-License-Identifier: Apache-2.0
// How a mixture of experts chooses, and how its parts are called in checkpoints. No tensor library here; nn/router.h
// and nn/moe.h compute it.
#pragma once

#include <cstdint>

#include "nn/activation.h"

namespace apus {

struct RouterForm {
  // What a router's logits become: numbers between 0 and 1 each for itself, or (false) shares of 1.
  bool sigmoid = false;
  // Or roots of softplus.
  bool root_softplus = false;
  // The weights of the chosen experts sum to 1; then they are multiplied by `scale`.
  bool normalise = false;
  double scale = 1;
  // Added to the sum that they are divided by.
  double beside_sum = 1e-20;
  // Above 1: experts stand in so many groups, of which `open_groups` are chosen from. A group is as good as its two
  // best experts together, or (false) as its best one.
  int64_t groups = 1, open_groups = 1;
  bool two_best = true;
  // What it reads is normalised without weights and multiplied by numbers of its own (`scale`) and 1 / sqrt(width); and
  // what an expert counts by one of that expert's (`per_expert_scale`).
  bool own_numbers = false;
  // Above 0: of two experts each gets its share among those whose logits lie nearly as high, the first being no longer
  // among them for the second. How near, relative to the logits: twice this.
  double nearness = 0;

  bool operator==(const RouterForm&) const = default;
};

// What an expert takes in training: `factor` times the tokens that it would get if all got alike, and no more; 0: all.
struct ExpertCapacity {
  double factor = 0;
  bool by_position = false;  // the first ones; else those that weigh it most
};

struct MixtureNames {
  // "": the parts of a mixture stand among those of its layer.
  const char* block = "mlp";
  const char* router = "gate";
  // Numbers added for the choice alone, which training leaves as they are; null: there are none.
  const char* correction = nullptr;
  // Their shape is [rows, E], of which the first row is this mixture's; 0: it is [E].
  int64_t correction_rows = 0;
  const char* experts = "experts";
  // Of each word the experts that its tokens meet, [words, per_token] whole numbers; null: they are chosen.
  const char* by_word = nullptr;
  // Of one expert.
  const char *gate = "gate_proj", *up = "up_proj", *down = "down_proj";
  // All experts' gates with ups, and all downs, are one tensor each in the file, under these names; null: they are not.
  const char *stacked_gate_up = nullptr, *stacked_down = nullptr;
  // Such tensors stand the other way round in the file.
  bool turned = false;
  // Of gates and ups there is a tensor each, the first being called stacked_gate_up. In the file rows of all experts
  // stand one behind the other, and only downs are turned.
  const char* stacked_up = nullptr;
  // The router has a bias.
  bool router_bias = false;
  // Added to what the experts give together; null: nothing is.
  const char* bias = nullptr;
  // The feed-forward that every token meets; with a number of its own for each token it is scaled by.
  const char* shared = "shared_expert";
  bool shared_is_gated = true;
  FeedForwardKind shared_kind = FeedForwardKind::Gated;
  FeedForwardNames of_shared = {};
};

}  // namespace apus
