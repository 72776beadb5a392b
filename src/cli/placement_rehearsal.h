// SPDX-License-Identifier: Apache-2.0
// The question of a rehearsal (--dry_run) to the devices.
#pragma once

#include <string>

#include "cli/option_groups.h"

namespace apus {

// Which parts of a model would lie on which device; run/inference.cpp asks the devices and answers with a table.
struct PlacementRehearsal {
  const ModelOptions& model;
  const PlacementOptions& placement;
  const EngineOptions* engine;  // null: no cache
  std::string adapter;
  std::string* table = nullptr;
};

}  // namespace apus
