// SPDX-License-Identifier: Apache-2.0
// What of a model is trained, from the flags of the tuner alone: per layer for the activations, and in sum.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/adapter_kinds.h"
#include "models/spec/tuning_groups.h"
#include "plan/model_facts.h"

namespace apus {

struct TuningSpec {
  bool lora = true;           // an adapter
  std::string kind = "lora";  // of which kind
  BoftSettings boft;
  FourierSettings fourier;
  PromptSettings prompt;
  int64_t rank = 8;
  double dropout = 0.05, adapter_bytes = 4;  // of one element of a factor
  bool dora = false;
  std::vector<std::string> target_modules = {"all-linear"}, target_parameters, modules_to_save;
  std::map<std::string, std::vector<int64_t>> token_rows;  // LoraConfig
  std::string target_regex;
  // The initialisation changes the base weights (pissa, olora): they get memory of their own.
  bool owns_targets = false;
  FrozenGroups groups;         // of models that see
  bool holds_experts = false;  // quantised weights of experts stay so
  double freeze_ratio = 0;
  int64_t trained_layers = 0;              // LISA: so many at a time; 0: all
  std::vector<std::string> freeze, train;  // beginnings of names
  std::optional<std::string> freeze_regex, train_regex;
};

struct LinearUse {  // one linear layer in training
  int64_t in = 0, out = 0;
  bool trained = false;
  int64_t rank = 0;  // of its LoRA factors, 0: none
  bool needs_input() const { return trained || rank > 0; }
  double weight() const { return static_cast<double>(in) * static_cast<double>(out); }
};

struct LayerUse {
  // gate, up, down: of the dense block, or of the shared expert; 0 x 0: none.
  LinearUse q, k, v, o, gate, up, down;
  bool sparse = false, experts_trained = false;
  Keeps keeps = Keeps::Tokens;
  double elements = 0, trained = 0, adapter = 0;  // parameters of the layer; trained ones; of factors
  double largest_trained = 0;
};

struct TuningFacts {
  TuningSpec spec;
  std::vector<LayerUse> layers;
  bool embedding_trained = false, head_trained = false;  // tied: the same
  double elements = 0, trained = 0, adapter = 0;         // base; trained base parameters; factors
  double linear = 0;                                     // of `elements`: in linear layers that may be held quantised
  double largest_held_stack = 0;                         // of those: the largest that experts lie in
  // How many of `trained` are in matrices other than embeddings; elements of the largest trained tensor.
  double trained_matrices = 0, largest_trained = 0;
  std::map<std::pair<int64_t, int64_t>, int64_t> trained_shapes;  // of those that are no stacks: how many of each
  double of_experts = 0;                                          // of `trained` and `adapter`
  bool tower_trained = false;                                     // something in the layers of a vision tower
};

// Of a pipeline: its layers, and what it has besides. `table`: of the embedding, also for the head that it is tied to.
struct StageFacts {
  int64_t begin = 0, end = std::numeric_limits<int64_t>::max();
  bool embedding = true, head = true, table = true;
};

// Of the weights of linear layers that may be held quantised.
double quantisable_elements(const ModelFacts& model, bool experts);
TuningFacts tuning_facts(const ModelFacts& model, const TuningSpec& spec, const StageFacts& stage = {});

}  // namespace apus
