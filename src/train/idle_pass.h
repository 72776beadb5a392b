// SPDX-License-Identifier: Apache-2.0
// Passes of a rank that adds nothing by them. Ranks that share out weights or experts exchange them in every pass, so
// that all must make as many, with rows or without.
#pragma once

#include "device/agree.h"
#include "dist/mesh.h"
#include "models/model.h"
#include "train/batch.h"

namespace apus {

inline bool passes_in_step(const Model& model) {
  const MeshView* const mesh = model.mesh();
  return mesh && mesh->size({Axis::DpShard, Axis::Ep}) > 1;
}

// Also while they collect, where slices of weights are whole.
inline bool exchanges_experts(const Model& model) {
  const MeshView* const mesh = model.mesh();
  return mesh && mesh->size(Axis::Ep) > 1;
}

// How many passes a rank makes that has so many to make by itself. All of `ranks` ask together where experts are
// exchanged, in evaluations too; elsewhere each goes its own way.
inline size_t passes_in_step(const Model& model, size_t mine, Comm* ranks) {
  const bool together = exchanges_experts(model) && ranks;
  return together ? static_cast<size_t>(largest_of(*ranks, static_cast<double>(mine))) : mine;
}

inline Samples idle_samples() { return {{.ids = {0, 0}, .trained = {false, true}}}; }
inline Batch idle_batch() { return collate(idle_samples()); }

}  // namespace apus
