// SPDX-License-Identifier: Apache-2.0
// Passes of a rank that adds nothing by them. Ranks that share out weights or experts exchange them in every pass, so
// that all must make as many, with rows or without.
#pragma once

#include "dist/mesh.h"
#include "models/model.h"
#include "train/batch.h"

namespace apus {

inline bool passes_in_step(const Model& model) {
  const MeshView* const mesh = model.mesh();
  return mesh && mesh->size({Axis::DpShard, Axis::Ep}) > 1;
}

inline Samples idle_samples() { return {{.ids = {0, 0}, .trained = {false, true}}}; }
inline Batch idle_batch() { return collate(idle_samples()); }

}  // namespace apus
