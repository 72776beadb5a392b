// SPDX-License-Identifier: Apache-2.0
// A model whose layers are stages of a pipeline.
#pragma once

#include <vector>

#include "models/model.h"

namespace apus {

// Each parameter gets the cut that leaves it to the stages that run it (stage_cut): embedding and towers to the first,
// final norm and head to the last, a tied table to both. `layers`: those of each stage.
// Before Module::place() and loading.
void cut_into_stages(Model& model, const std::vector<Range>& layers);

// Whether anything in the stages before this one is trained, which then wait for a gradient.
bool trains_before(Model& model, int stage);

}  // namespace apus
