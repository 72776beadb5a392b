// SPDX-License-Identifier: Apache-2.0
// What processes can share out of a model, known from its config.json alone.
#pragma once

#include <cstdint>
#include <string>

#include "plan/model_facts.h"

namespace apus {

// --tensor_model_parallel_size, --expert_model_parallel_size and --pipeline_model_parallel_size, and how many processes
// share out the heads of attention.
struct ModelParts {
  int64_t tensor = 1, experts = 1, row_sharers = 1, stages = 1;
  bool dora = false;
};

// Why the model cannot be shared out so, and what to do; empty: it can.
std::string why_not(const ModelParts& parts, const ModelFacts& facts, const std::string& model);

}  // namespace apus
