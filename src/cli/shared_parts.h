// SPDX-License-Identifier: Apache-2.0
// What processes can share out of a model, known from its config.json alone.
#pragma once

#include <cstdint>
#include <string>

#include "plan/model_facts.h"

namespace apus {

// --tensor_model_parallel_size and --expert_model_parallel_size, and how many processes read the same rows.
struct ModelParts {
  int64_t tensor = 1, experts = 1, row_sharers = 1;
};

// Why the model cannot be shared out so, and what to do; empty: it can.
std::string why_not(const ModelParts& parts, const ModelFacts& facts, const std::string& model);

}  // namespace apus
