// SPDX-License-Identifier: Apache-2.0
// A model as numbers, from its config.json alone: every parameter with its shape, under the names of the checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace apus {

struct ParamFacts {
  std::string name;
  std::vector<int64_t> shape;
  bool linear = false;  // the weight of a linear layer, which can have LoRA factors
  int64_t numel() const;
  std::string module() const { return name.substr(0, name.rfind('.')); }
};

struct ModelFacts {
  std::string type, dtype;  // dtype: config.json's, "bfloat16"; may be empty
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0, positions = 0;
  bool tied = false, qk_norm = false;
  int64_t experts = 0, per_token = 0, expert_ffn = 0, shared_ffn = 0;  // mixture of experts
  std::vector<bool> sparse;                                            // per layer
  std::vector<ParamFacts> params;                                      // in the model's own order, tied ones once

  int64_t parameters() const;
  int64_t active_parameters() const;  // those that one token meets
  int64_t matrix_elements() const;    // of all products that one token meets, the head included
  std::vector<std::string> linear_modules() const;
};

// Fault::Model for a family that is not known, naming those that are.
ModelFacts model_facts(const Json& config);

}  // namespace apus
