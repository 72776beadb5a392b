// SPDX-License-Identifier: Apache-2.0
// What only a forward pass of training knows of its step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "nn/memo.h"
#include "nn/router_form.h"
#include "nn/step.h"
#include "ops/fp8_recipe.h"

namespace apus {

class LargestLogit;  // nn/largest_logit.h
struct RouterLoss;   // nn/moe.h
class TokenShare;    // nn/token_share.h
struct TokenGroups;  // nn/token_groups.h
struct RowOrigins;   // nn/row_origins.h

struct TrainingStep {
  // Where this forward's dropout masks and noise come from; 0: there are none.
  uint64_t dropout_seed = 0;
  // Mixture of experts: where the balance loss is collected.
  std::shared_ptr<RouterLoss> router;
  // And how many tokens an expert takes.
  ExpertCapacity capacity = {};
  // A head tied to the embedding: where embed() leaves the table for the head.
  std::shared_ptr<at::Tensor> table;
  // Where several ranks share out the tokens: layers are given this rank's alone, all else in the step is of all.
  std::shared_ptr<const TokenShare> tokens = {};
  // Where ranks that share out matrices share out the tokens between these too (nn/residual_share.h): layers are given
  // this rank's alone, and their mixers and feed-forwards those of all. Null: every rank has all of them.
  std::shared_ptr<const TokenShare> residual = {};
  // Where sequences share their beginnings (train/shared_prefix): the rows of this pass's keys that they see, one
  // sequence behind the other. Undefined: each sees its own.
  at::Tensor key_K = {};
  // LongLoRA: which tokens each half of the heads looks at. Null: all before them.
  std::shared_ptr<const TokenGroups> groups = {};
  // Of rows that stand in the order of their experts, and not all of a micro-batch. Null: they do, and are.
  std::shared_ptr<const RowOrigins> origins = {};
  // Linear layers multiply FP8 numbers, but for those that keep to their type (Linear::keeps_type).
  std::optional<Fp8Recipe> fp8 = {};
  // Who is told of queries and keys. Null: nobody.
  std::shared_ptr<LargestLogit> logits = {};
  // Of a layer that runs again in the backward pass, while it runs.
  Memo* memo = nullptr;
};

inline const TrainingStep& training_of(const Step& s) {
  static const TrainingStep none;
  return s.training ? *s.training : none;
}

inline void set_training(Step& s, TrainingStep training) {
  s.training = std::make_shared<const TrainingStep>(std::move(training));
}

// Where results of this kind are remembered; null: they are not.
inline Memo* memo_of(const Step& s, ResultKind kind) {
  Memo* const memo = training_of(s).memo;
  return memo && memo->keeps(kind) ? memo : nullptr;
}

}  // namespace apus
