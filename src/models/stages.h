// SPDX-License-Identifier: Apache-2.0
// A model whose layers are stages of a pipeline.
#pragma once

#include <vector>

#include "models/model.h"

namespace apus {

// Each parameter gets the cut that leaves it to the stages that run it (stage_cut): embedding and towers to the first,
// final norm and head to the last, a tied table to both. `layers`: those of each piece, whose stages are 0, 1 ...,
// `stages` - 1, and 0 again where each has several. Before Module::place() and loading.
void cut_into_stages(Model& model, const std::vector<Range>& layers, int stages);

// Of each piece: whether anything in those before it is trained, which then wait for a gradient.
std::vector<bool> trains_before(Model& model, const std::vector<Range>& layers);

}  // namespace apus
