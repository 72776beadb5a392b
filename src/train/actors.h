// SPDX-License-Identifier: Apache-2.0
// The models an algorithm works with. Only the policy is trained.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "device/comm.h"
#include "models/model.h"
#include "train/batch.h"

namespace apus {

class Rollout;          // train/rollout.h
class ReferenceRecord;  // train/reference_record.h

// What the policy is compared with: another model; or the policy itself with its adapters off, which is the base model
// as long as nothing of the base is trained; or what such a model said of all sequences beforehand.
class Reference {
 public:
  static Reference of(const Model& other) { return {&other, false, nullptr}; }
  static Reference without_adapters(const Model& policy) { return {&policy, true, nullptr}; }
  static Reference recorded(const ReferenceRecord& record) { return {nullptr, false, &record}; }
  // log p of each label of the batch, f32 [T], detached; 0 where there is no label. Nothing is dropped, no noise added.
  // Logits are divided by `temperature`, which a record made beforehand does not know (it must be 1 then).
  at::Tensor logprobs(const Batch& batch, double temperature = 1) const;
  // What its logits are made of, detached. Not of a record, which holds log-probs alone.
  ops::HeadFactors head_factors(const Batch& batch) const;

 private:
  Reference(const Model* model, bool adapters_off, const ReferenceRecord* record)
      : model_(model), adapters_off_(adapters_off), record_(record) {}
  const Model* model_;
  bool adapters_off_;
  const ReferenceRecord* record_;
};

// The number that a model with a head of one score gives at each token: f32 [T].
at::Tensor token_scores(const Model& model, const at::Tensor& normed_TD, const Step& step);

// Such a model, asked what it thinks of whole texts: a reward model.
class Scorer {
 public:
  explicit Scorer(const Model& model) : model_(&model) {}
  at::Tensor scores(const Batch& batch) const;        // f32 [S, labels], detached
  at::Tensor token_scores(const Batch& batch) const;  // f32 [T], detached

 private:
  const Model* model_;
};

struct Actors {
  Model& policy;
  std::optional<Reference> reference;
  Rollout* rollout = nullptr;
  // The further models that the algorithm's options name, by their role (train/options/algorithm_options.h).
  std::map<std::string, std::vector<Model*>> others = {};
  // Of host tensors, among the ranks that are given the same rows: they go in step, whatever others do. Null: this one.
  Comm* sharers = nullptr;
  // Of host tensors, for what all ranks must count together. All of them collect the updates of a step at once, so
  // Algorithm::collect may use it while gradients are on; in evaluations and losses they do not go in step. Null: one.
  Comm* data_ranks = nullptr;
  double summed(double value) const;  // over the ranks
  int64_t step = 0;                   // updates that are done
  // A further micro-batch of the data, for a collection that needs more than it was given; nothing at the epoch's end.
  // Each rank asks for itself. Null: there are none.
  std::function<std::optional<Samples>()> more_rows;
};

}  // namespace apus
