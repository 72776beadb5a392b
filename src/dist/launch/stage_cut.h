// SPDX-License-Identifier: Apache-2.0
// Parameters of a model whose layers several ranks run one behind the other, as stages of a pipeline (Axis::Pp): a
// stage holds all of a parameter, or nothing of it.
#pragma once

#include <vector>

#include "dist/launch/mesh_layout.h"

namespace apus {

constexpr int kMostStages = 62;

// A cut that gives everything to these stages, and to the others no row. Its `units` has a bit for each of them.
Cut stage_cut(const std::vector<int>& stages);
inline bool has_stage(const Cut& cut, int stage) { return (cut.units >> stage & 1) != 0; }

}  // namespace apus
