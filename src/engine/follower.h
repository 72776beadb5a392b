// SPDX-License-Identifier: Apache-2.0
// A rank that holds a part of a model whose engine runs in another rank: it does what it is told.
#pragma once

#include "engine/engine.h"

namespace apus {

class Follower {
 public:
  // As the engine's, of which the hooks bring the line. The model is not the follower's and must outlive it.
  Follower(const Model& model, at::TensorOptions options, EngineSpec spec, ModelHooks hooks);
  // Until the engine ends. Fault::Comm when its rank is lost.
  void run();
  // The same until it rests or ends. Does it rest?
  bool until_rest();

 private:
  void obey(Order& order);
  void change_adapter(const Order& order);
  void use_head(const Order& order);

  const Model* model_;  // none after a sleep of level 2
  const at::TensorOptions options_;
  const ModelHooks hooks_;
  KvCache::Spec cache_spec_;
  std::unique_ptr<KvCache> cache_;  // none while asleep
  StepBuilder builder_;
  at::Tensor hidden_TD_;  // of the last step
};

}  // namespace apus
