// SPDX-License-Identifier: Apache-2.0
// Where the checkpoints of a run go: its folder, who writes there, and the memory in which they wait for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/folder_lock.h"
#include "cli/train.h"
#include "dist/world.h"

namespace apus {

// The first rank makes it and writes in it, and keeps others out while `lock` lives.
std::filesystem::path run_folder(const TrainRun& o, World& world, std::unique_ptr<FolderLock>& lock);

// The flag by which each rank writes a part of a checkpoint; empty: the first writes alone.
std::string flag_of_shares(const TrainRun& o);

// Bytes of memory for checkpoints that are yet to be written.
int64_t room_for_checkpoints();

}  // namespace apus
