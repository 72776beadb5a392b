// SPDX-License-Identifier: Apache-2.0
#include "train/rollout.h"

#include <algorithm>
#include <bit>

#include "engine/engine.h"

namespace apus {

Rollout::Rollout(const Model& policy, at::TensorOptions options, EngineSpec spec)
    : policy_(policy), options_(options), spec_(std::move(spec)) {}

Rollout::~Rollout() = default;

Engine& Rollout::awake(int64_t tokens) {
  const int64_t longest = policy_.shape().max_positions, wanted = std::min(longest, tokens);
  if (engine_ && spec_.max_model_len >= wanted) {
    engine_->wake();
  } else {
    engine_.reset();  // gives its cache back before a larger one is made
    // With room to spare, so that prompts that grow a little do not make one engine after the other.
    spec_.max_model_len = std::min(longest, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(wanted))));
    engine_ = std::make_unique<Engine>(policy_, options_, spec_);
  }
  if (version_of_cache_ != version_) engine_->weights_changed();
  version_of_cache_ = version_;
  return *engine_;
}

std::vector<FinishedAnswer> Rollout::answers(const std::vector<std::vector<int32_t>>& prompts,
                                             const Sampling& sampling) {
  if (prompts.empty()) return {};
  size_t longest = 1;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  Engine& engine = awake(static_cast<int64_t>(longest) + sampling.max_new_tokens);
  std::vector<FinishedAnswer> answers;
  try {
    answers = generate(engine, prompts, sampling);
  } catch (...) {
    engine.sleep();
    throw;
  }
  engine.sleep();
  for (FinishedAnswer& answer : answers)
    for (TokenOut& token : answer.tokens) token.weights = version_;
  return answers;
}

}  // namespace apus
