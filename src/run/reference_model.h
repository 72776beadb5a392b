// SPDX-License-Identifier: Apache-2.0
// What a training run compares its policy with: the policy without its adapter, a second, frozen model, or what one of
// these said of every row before the run.
#pragma once

#include <memory>
#include <optional>

#include "checkpoint/adapter.h"
#include "run/shared_training.h"
#include "run/train_data.h"
#include "run/tuned_model.h"
#include "train/reference_record.h"

namespace apus {

struct ReferenceModel {
  std::unique_ptr<Model> model;           // null: the policy itself, or not needed any more
  std::unique_ptr<ShardedModel> sharded;  // where ranks share it out
  std::optional<Adapter> adapter;         // of --ref_adapters
  std::optional<Reference> compare;       // empty: the algorithm compares with nothing
  ReferenceRecord record;
};

// `tuned` and `mesh` must outlive it. With --precompute_ref_log_probs all rows of `data` go through the reference here,
// and every rank knows the results of all.
std::unique_ptr<ReferenceModel> load_reference(const TrainRun& options, const TunedModel& tuned, TrainData& data,
                                               Mesh& mesh);

}  // namespace apus
