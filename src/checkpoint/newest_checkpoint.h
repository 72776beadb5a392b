// SPDX-License-Identifier: Apache-2.0
// Where training runs left their checkpoints: OUT/vN-<time>/checkpoint-N, or OUT/checkpoint-N.
#pragma once

#include <filesystem>

namespace apus {

// The last checkpoint of a run's folder, or of the newest run that has one in a folder of runs; empty: there is none.
std::filesystem::path newest_checkpoint(const std::filesystem::path& folder);

}  // namespace apus
