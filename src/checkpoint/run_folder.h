// SPDX-License-Identifier: Apache-2.0
// The checkpoints in the folders of training runs, and which of them a run can go on from. No tensor library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace apus {

// checkpoint-N folders of a run, by rising N.
std::vector<std::pair<int64_t, std::filesystem::path>> list_checkpoints(const std::filesystem::path& run_dir);

// The last checkpoint that can answer (of a run's folder, or of the newest run that has one in a folder of runs
// vN-<time>); empty: there is none.
std::filesystem::path newest_checkpoint(const std::filesystem::path& folder);

// The files of an optimizer's state, slice by slice; empty: there are none. Fault::Usage when some are missing.
std::vector<std::filesystem::path> optimizer_files(const std::filesystem::path& checkpoint);

// What a run that goes on from it would lack; empty: nothing.
std::string lacks_of_checkpoint(const std::filesystem::path& checkpoint, bool with_optimizer);

// The newest whole checkpoint of a run in this folder, or, of runs in folders vN-<time> of it, that of the last run
// that has one. What is passed over is said in `remarks`.
std::optional<std::filesystem::path> newest_whole_checkpoint(const std::filesystem::path& output_dir, bool versions,
                                                             bool with_optimizer, std::vector<std::string>& remarks);

// A hidden twin of a checkpoint beside it that stays while the checkpoint itself is rotated away: of links to its
// files, or copies where the file system has no links. Who asks for it removes it; of a dead process it goes with the
// other leftovers.
std::filesystem::path linked_copy(const std::filesystem::path& checkpoint);

}  // namespace apus
