// SPDX-License-Identifier: Apache-2.0
// apus plan: what a run will need and how fast it may be, before anything is loaded.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/model_share.h"
#include "plan/train_memory.h"

namespace apus {

struct InferSpec {
  int64_t context = 0;         // longest sequence
  int64_t sequences = 256;     // in flight
  int64_t step_tokens = 2048;  // of one forward
  double memory_share = 0.9;   // of the device, for weights and cache
  bool cache_codes = false;    // keys and values in eight bits
  double cache_bytes = 0;      // 0: what the share leaves
  bool cached = true;          // false: whole texts are scored, nothing is kept
};

struct PlanSpec {
  std::string title, command = "sft";  // title: the model's name as the user gave it
  std::string stack = "apus";          // or "ms-swift": PyTorch with transformers, peft and DeepSpeed
  ModelFacts model;
  DeviceFacts device;
  bool inference = false;
  InferSpec infer;
  TuningSpec tuning;
  TrainSpec train;                   // tokens: count_tokens()
  int64_t rows = 1, row_tokens = 0;  // of a micro-batch; longest row, or pack
  int64_t row_copies = 1;            // 2: chosen and rejected
  ModelShare share;                  // of `model`, what a device holds
  bool packed = false, master_by_choice = false;
  std::vector<std::string> assumptions;  // in words, of what the flags left open

  double element() const { return train.element; }
  void count_media(const MediaFacts& media);  // tower_memory.cpp
  void count_tokens() {                       // of a micro-batch, on one device
    train.tokens = static_cast<double>(rows * row_tokens * row_copies) / static_cast<double>(train.row_sharers);
  }
};

// A change of flags that makes a run smaller.
struct Change {
  std::string flags, meaning;
};

struct Speed {
  // On all devices together: trained, or generated for all sequences.
  double tokens_per_second = 0;
  double prompt_tokens_per_second = 0;  // inference
  std::string bound;                    // "arithmetic", "memory", "communication"
  double token_flops = 0;               // of a trained token; layers that run again are not counted
  double row_bytes = 0;                 // that a device sends of a micro-batch's rows to those it shares them with
};

struct Plan {
  PlanSpec spec;
  TuningFacts tuning;
  MemoryUse use;
  double capacity = 0;
  bool fits = false;
  Speed speed;
  double cache_token_bytes = 0;  // of one token, inference
  int64_t full_sequences = 0;    // how many of the longest context the cache holds, inference
  // If the run does not fit: the cheapest changes that together make it fit; empty if none are known.
  std::vector<Change> changes;
  double changed_peak = 0;
};

struct Strategy {  // one row of --search
  int64_t rows, accumulation;
  bool recompute, selective;
  int zero;
  double peak, tokens_per_second;
  std::string bound, flags;
};

Plan make_plan(PlanSpec spec);                                  // memory, speed, and changes when it does not fit
std::vector<Strategy> search_strategies(const PlanSpec& spec);  // those that fit, each way of --deepspeed tried
// Those of a plan that was made with these further flags, whose mesh and sharding stay.
std::vector<Strategy> search_strategies(const PlanSpec& spec, const std::vector<std::string>& with);
// Further flags that are worth a try: how devices share out the model, with this optimizer ("": as it is). Which of
// them go together is for the command to say.
std::vector<std::vector<std::string>> meshes_to_try(const PlanSpec& spec, const std::string& optimizer = "");
void fastest_first(std::vector<Strategy>& found);

std::string plan_text(const Plan& plan);
Json plan_json(const Plan& plan);
std::string strategies_text(const std::vector<Strategy>& all, const PlanSpec& spec);
Json strategies_json(const std::vector<Strategy>& all);

// The parts, one file each.
MemoryUse shared_memory(const PlanSpec& spec);             // search.cpp; of the device that needs most
MemoryUse infer_memory(const PlanSpec& spec, Plan& plan);  // infer_memory.cpp; fills the cache's numbers
MemoryUse python_stack_memory(const PlanSpec& spec, const TuningFacts& tuning);  // python_stack.cpp
Speed estimated_speed(const PlanSpec& spec, const TuningFacts& tuning);          // speed.cpp
Plan bare_plan(PlanSpec spec);                                                   // memory and speed alone
// codes: in eight bits, with scales.
double cache_bytes_per_token(const ModelFacts& model, double element, bool codes = false);
std::string strategy_name(int zero, int devices);  // "one device", "data parallel", "zero3"

}  // namespace apus
