// SPDX-License-Identifier: Apache-2.0
// What one device holds of a model whose matrices, experts or layers several share out.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/tuning_facts.h"

namespace apus {

struct ModelShare {
  int64_t tensor = 1, experts = 1;  // devices that share out matrices, and experts
  std::vector<int64_t> stages;      // layers of each stage; empty: one device runs all
  int64_t pieces = 1;          // in which each stage runs them, in turn with the others; counted as one run of them
  int64_t copies_of() const {  // devices that hold one whole model, experts aside
    return tensor * std::max<int64_t>(1, std::ssize(stages));
  }
  bool any() const { return copies_of() * experts > 1; }
};

// As the first of those devices holds it, which has the largest part.
ModelFacts cut_model(const ModelFacts& whole, const ModelShare& share);
// What the stage trains of it.
StageFacts stage_of(const ModelShare& share, size_t stage, bool tied);

}  // namespace apus
