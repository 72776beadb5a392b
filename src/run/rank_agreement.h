// SPDX-License-Identifier: Apache-2.0
// What all ranks must hold alike before the first step. Ranks that train on other weights or rows would end without an
// error, and with a model that nobody meant.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/state.h"
#include "data/rows/row_store.h"
#include "dist/world.h"
#include "nn/module.h"

namespace apus {

// Every trained and frozen parameter by a digest of its values; `folder` is where the weights came from.
void require_same_weights(Module& model, World& world, const std::filesystem::path& folder);
// Rank 0's values for all.
void broadcast_weights(Module& model, World& world);
// The optimizer's state, the place in the data and the counters of a run that is gone on with.
void require_same_state(const RunState& state, World& world, const std::filesystem::path& folder);

// A line for each file of rows: its name, how many rows, and a digest of them.
std::string rows_by_file(const RowStore& rows);

}  // namespace apus
