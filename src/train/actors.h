// SPDX-License-Identifier: Apache-2.0
// The models an algorithm works with. Only the policy is trained.
#pragma once

#include <optional>

#include "models/model.h"
#include "train/batch.h"

namespace apus {

class Rollout;  // train/rollout.h

// What the policy is compared with: another model, or the policy itself with its adapters off. The latter is the base
// model as long as nothing of the base is trained.
class Reference {
 public:
  static Reference of(const Model& other) { return {other, false}; }
  static Reference without_adapters(const Model& policy) { return {policy, true}; }
  // log p of each label of the batch, f32 [T], detached; 0 where there is no label. Nothing is dropped, no noise added.
  at::Tensor logprobs(const Batch& batch) const;

 private:
  Reference(const Model& model, bool adapters_off) : model_(&model), adapters_off_(adapters_off) {}
  const Model* model_;
  bool adapters_off_;
};

struct Actors {
  Model& policy;
  std::optional<Reference> reference;
  Rollout* rollout = nullptr;
};

}  // namespace apus
