// SPDX-License-Identifier: Apache-2.0
// Tables of embeddings that an adapter's file holds: whole ones (new tokens), or single rows (trainable_token_indices).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/adapter_config.h"
#include "models/model.h"

namespace apus {

// A table that the adapter's run had changed goes into the base, and into what is tied to it.
void put_table(Model& model, Param& table, const at::Tensor& saved);

inline constexpr const char* kTokenRows = ".token_adapter.trainable_tokens_delta";  // whole rows, in spite of its name

struct TokenRows {
  Param* table;
  std::vector<int64_t> rows;
};
// Their places in the model, by the file's names.
std::map<std::string, TokenRows> token_rows_of(Model& model, const LoraConfig& config, const std::string& prefix);
void put_rows(Model& model, const TokenRows& place, const std::string& name, const at::Tensor& saved);

}  // namespace apus
