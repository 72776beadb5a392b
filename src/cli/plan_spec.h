// SPDX-License-Identifier: Apache-2.0
// How the options of a command become a plan: for `apus plan`, and for --dry_run of the commands themselves. Knows
// groups of options, no command.
#pragma once

#include "checkpoint/block_expansion.h"
#include "cli/option_groups.h"
#include "cli/train_options.h"
#include "plan/plan.h"
#include "quant/wish.h"
#include "train/options/loop_options.h"
#include "train/options/sharding_options.h"

namespace apus {

struct TrainingFlags {
  const ModelOptions& model;
  const TemplateOptions& prompt;
  const DataOptions& data;
  const TunerOptions& tuner;
  const LoopOptions& loop;
  const OptimisationOptions& optimisation;
  const ShardingOptions& mesh;
};

// `config`: the model's config.json. What the flags leave open is assumed, and said in the spec. The caller says which
// command it is, and how many micro-batches make an update.
PlanSpec training_spec(const TrainingFlags& flags, const Json& config, const DeviceFacts& device, int64_t devices);
PlanSpec inference_spec(const ModelOptions& model, const EngineOptions& engine, const Json& config,
                        const DeviceFacts& device);
PlanSpec scoring_spec(const ModelOptions& model, int64_t step_tokens, const Json& config, const DeviceFacts& device);

// --tuner_type llamapro on this model; Fault::Usage where its layers cannot be copied so.
BlockExpansion grown_blocks(const TunerOptions& tuner, const ModelFacts& smaller);

// The config of a folder, a config.json, or a known shape's name, which may carry its maker: Qwen/Qwen2.5-7B-Instruct.
Json config_named(const std::string& model);

// Counts the weights of linear layers as they will be held: by the checkpoint's quantization_config, or --quant_method.
void hold_quantised(PlanSpec& spec, const Json& config, const quant::Wish& quantise);

}  // namespace apus
