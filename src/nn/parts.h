// SPDX-License-Identifier: Apache-2.0
// Between the parts of a parameter that ranks hold and the whole, which files hold.
#pragma once

#include "nn/module.h"

namespace apus {

// Whether ranks share it out. The same answer on all of them, as one may have all there is to share.
bool is_cut(const Param& param, const MeshView* mesh);

// Leaves a tensor whole to one rank of the axis, and nothing to the others: what belongs to one of stacked experts.
Cut whole_at(Axis axis, int rank);
bool leaves_whole(const Cut& cut);
// Whether other ranks have all of it: other stages of a pipeline (dist/launch/stage_cut.h), or who holds the expert.
bool is_elsewhere(const Param& param, const MeshView* mesh);

// The cuts but for the one between ranks that shard all parameters: those of what such ranks gather for a while.
std::vector<Cut> unsharded_cuts(const Param& param);

// This rank's part of a whole tensor that has the parameter's shape: a view.
at::Tensor own_part(at::Tensor whole, const Param& param);

// The whole of a tensor of which each rank holds its part of the parameter: the parameter itself, a moment of its
// optimizer. All ranks of the cuts' axes call this together, and all get the whole. Where nothing is cut it is the
// tensor that came.
at::Tensor gathered(const at::Tensor& part, const Param& param, MeshView* mesh);
inline at::Tensor gathered(const Param& param, MeshView* mesh) { return gathered(param.data.detach(), param, mesh); }

}  // namespace apus
