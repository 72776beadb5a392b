// SPDX-License-Identifier: Apache-2.0
// Whether all ranks see one folder, asked before anything is computed.
#pragma once

#include <filesystem>
#include <string>

#include "device/comm.h"

namespace apus {

// Rank 0 puts a small file there, and all look for it: for so many seconds, as a network file system may show it late.
// All ranks call it together; Fault::Usage, on all, names those that do not see it. `flag`: what makes each rank write.
void require_shared_folder(const std::filesystem::path& folder, Comm& ranks, double patience_s,
                           const std::string& flag);

}  // namespace apus
