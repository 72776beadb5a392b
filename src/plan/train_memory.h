// SPDX-License-Identifier: Apache-2.0
// The memory of a training run on one device, by playing its first two updates through: what is allocated and freed in
// the order in which the trainer, autograd and the operators do it.
#pragma once

#include <map>
#include <string>

#include "plan/device_facts.h"
#include "plan/timeline.h"
#include "plan/tower_memory.h"
#include "plan/tuning_facts.h"

namespace apus {

struct OptimizerFacts {
  std::string kind = "adamw";                         // train/options/optimizer_info.h
  bool master = true;                                 // f32 copies of half-typed weights
  std::map<std::string, std::string> arguments = {};  // --optim_args
  bool momentum = false;                              // sgd with momentum, adafactor with a first moment
};

struct RecomputeFacts {  // what runs again in the backward pass
  // The first so many: all of each; with `selective` only these parts of each.
  int64_t layers = 0;
  bool selective = false;  // norms, rotations and gates of every layer
  bool attention = false, feed_forward = false;
  bool whole(int64_t model_layers) const { return !selective && layers >= model_layers; }
  double share(int64_t model_layers) const;  // of the forward pass's arithmetic
};

struct TrainSpec {
  double tokens = 0;  // of a micro-batch, on one device
  // Devices that share out the tokens of each row, and the groups of these among which keys and values go round.
  int64_t row_sharers = 1, row_groups = 1;
  int64_t residual_sharers = 1;  // devices that share out matrices and the tokens between these
  double element = 2;            // bytes of a weight and of an activation
  double disk_element = 2;       // of a weight in the checkpoint's files
  double held_bits = 0;          // of a weight of a linear layer that is held quantised; 0: none is
  int64_t accumulation = 1;      // micro-batches of an update
  RecomputeFacts recompute;
  OptimizerFacts optimizer;
  bool wide_gradients = false;      // they add up in f32, over micro-batches and ranks
  bool update_in_backward = false;  // a gradient goes as soon as it is complete
  // Data-parallel ranks; what they share out: 1 the optimizer's state, 2 also gradients, 3 also weights.
  int devices = 1, zero = 0;
  int shard_devices = 0;  // of 3: so many share them out, and others hold the same; 0: all
  int sharers() const { return shard_devices > 0 ? shard_devices : devices; }
  bool release_after_forward = true;  // of 3: layers are gathered again for their backward pass
  bool on_host = false;               // what a rank holds of them, and the optimizer's step
  // Of a model that devices share out (plan/model_share.h); `devices` are those with the same part, experts aside.
  bool in_parts = false;
  int64_t expert_devices = 1;  // among them that share out the experts
  int64_t ahead = 0;           // forward passes that wait for their backward passes: of a stage
  bool first_stage = true, last_stage = true;
  int64_t frozen_copies = 0;  // of the model, beside the trained one: a reference
  // Elements of further models that are only asked: a teacher, reward models.
  double frozen_elements = 0;
  // Models of the policy's trunk with a head of one number that are trained in the same passes: a critic.
  int64_t trained_copies = 0;
  bool copies_share_trunk = false;  // they are adapters on the policy's frozen weights
  double cache_bytes = 0;           // of keys and values, when the run also generates
  int64_t answers = 0;              // which it holds at once
  double patches = 0;               // of images that the tower sees in a micro-batch
  bool towers_again = false;        // the layers of a trained tower run again in the backward pass
  double media_cache = 0;           // bytes of prepared media, in the host's memory
  // Answers are rolled out, for which shared weights are whole for a while: the model's, or those of all models, which
  // then read the answers.
  bool rolls_out = false, all_read_answers = false;
};

struct MemoryUse {
  Bytes at_peak{};
  double peak = 0;
  std::string when;  // the moment of the peak, in words
};

MemoryUse train_memory(const ModelFacts& model, const TuningFacts& tuning, const TrainSpec& spec,
                       const DeviceFacts& device);

// Of a model's weights in memory, those that are held quantised among them.
double weight_bytes(const TuningFacts& tuning, const TrainSpec& spec);
double optimizer_state_bytes(const TuningFacts& tuning, const TrainSpec& spec);  // on all devices together

// Tokens that meet the head at a time, as the fused loss of this device chooses it. keeps: the gradients of all logits.
double head_chunk_tokens(const DeviceFacts& device, double vocabulary, double tokens, bool head_trained, bool keeps);

}  // namespace apus
