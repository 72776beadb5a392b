// SPDX-License-Identifier: Apache-2.0
// The policy answers prompts while it is trained: an engine over the very weights that are trained, none are copied.
// The engine stays; between two rounds of answers it sleeps, and its cache is given back.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "engine/answer/answer_all.h"
#include "engine/answer/engine_spec.h"

namespace apus {

class Engine;
class Model;

class Rollout {
 public:
  // `options`: dtype and device of the cache. `spec.max_model_len` grows with the prompts.
  Rollout(const Model& policy, at::TensorOptions options, EngineSpec spec = {});
  ~Rollout();

  // In the order of the prompts; the i-th is answered with seed + i. Wakes the engine before and lets it sleep after,
  // also when it throws. TokenOut::weights is how often weights_changed() was said.
  std::vector<FinishedAnswer> answers(const std::vector<std::vector<int32_t>>& prompts, const Sampling& sampling);
  // Whoever changed the policy's weights between two calls says so.
  void weights_changed() { ++version_; }

 private:
  Engine& awake(int64_t tokens);  // for texts of so many tokens
  int64_t version_ = 0, version_of_cache_ = 0;
  const Model& policy_;
  const at::TensorOptions options_;
  EngineSpec spec_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace apus
