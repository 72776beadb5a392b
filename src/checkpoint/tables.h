// SPDX-License-Identifier: Apache-2.0
// Tables of embeddings that an adapter's file holds: whole ones (new tokens), or single rows (trainable_token_indices).
#pragma once

#include <functional>
#include <string>

#include "checkpoint/adapter_config.h"
#include "models/model.h"
#include "nn/token_rows.h"

namespace apus {

// A table that the adapter's run had changed goes into the base, and into what is tied to it.
void put_table(Model& model, Param& table, const at::Tensor& saved);

// Lays rows that can be trained over the tables that the config names, and over what is tied to them: the table's own
// at first, in `type`. What does not fit is Fault::Usage.
void attach_token_rows(Model& model, const LoraConfig& config, const std::string& adapter, at::ScalarType type);
// Those that attach_token_rows() laid over a table; a tied head shares the table's and is not visited.
void each_token_rows(Model& model, const std::string& adapter,
                     const std::function<void(const std::string& module, Adaptable&, TokenRows&)>& f);
// After other tensors were put in the place of the rows: what is tied takes them too.
void share_token_rows(Model& model, const std::string& adapter);
// Puts them into the tables, and takes them away.
void merge_token_rows(Model& model, const std::string& adapter);

}  // namespace apus
