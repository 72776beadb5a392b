// SPDX-License-Identifier: Apache-2.0
// What this rank updates of each parameter.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/state_places.h"
#include "models/model.h"
#include "train/optimizer.h"

namespace apus {

// `models`: by what their parameters' names begin with.
StatePlaces own_places(const std::map<std::string, Model*>& models, const std::vector<NamedParam>& updated);

}  // namespace apus
