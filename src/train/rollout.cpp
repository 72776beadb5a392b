// SPDX-License-Identifier: Apache-2.0
#include "train/rollout.h"

#include <algorithm>

#include "engine/engine.h"

namespace apus {

Rollout::Rollout(const Model& policy, at::TensorOptions options, EngineSpec spec)
    : policy_(policy), options_(options), spec_(std::move(spec)) {}

Rollout::~Rollout() = default;

Engine& Rollout::awake(int64_t tokens) {
  const int64_t wanted = std::min(policy_.shape().max_positions, tokens);
  if (engine_ && spec_.max_model_len >= wanted) {
    engine_->wake();
  } else {
    engine_.reset();  // gives its cache back before a larger one is made
    spec_.max_model_len = wanted;
    engine_ = std::make_unique<Engine>(policy_, options_, spec_);
  }
  return *engine_;
}

std::vector<FinishedAnswer> Rollout::answers(const std::vector<std::vector<int32_t>>& prompts,
                                             const Sampling& sampling) {
  if (prompts.empty()) return {};
  size_t longest = 1;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  Engine& engine = awake(static_cast<int64_t>(longest) + sampling.max_new_tokens);
  std::vector<FinishedAnswer> answers = generate(engine, prompts, sampling);
  engine.sleep();
  return answers;
}

}  // namespace apus
