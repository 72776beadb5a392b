// SPDX-License-Identifier: Apache-2.0
// What lies in the hubs' cache folders, which their own tools share with this program.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hub/hub.h"

namespace apus {

struct KeptRepo {
  std::string id;  // owner/name
  HubKind hub = HubKind::ModelScope;
  RepoKind kind = RepoKind::Model;
  std::filesystem::path folder;  // all of it
};

// Of both hubs, by their environment variables.
std::vector<KeptRepo> kept_repos();

// Bytes of all files below a folder; links count nothing.
int64_t folder_bytes(const std::filesystem::path& folder);

}  // namespace apus
