// SPDX-License-Identifier: Apache-2.0
// Which layers each stage of a pipeline runs, and in which order it makes the passes of an update. No tensor library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dist/launch/mesh_layout.h"

namespace apus {

struct StageWish {
  int64_t stages = 1;
  int64_t pieces = 1;                  // of each stage, which runs them in turn
  std::optional<int64_t> first, last;  // layers of the first and of the last stage; the others share the rest
  // The layers of each piece, as numbers ("6,7,7,4") or as Megatron writes them ("Et*6|t*7|t*7|t*4L"); twice as many as
  // there are stages: each has two pieces. Empty: evenly.
  std::string layout;
};

// The layers of each piece, all of them together 0 to `layers`: one of each stage, then, where stages have several, the
// second of each, and so on. `seen`: ModelShape::seen_layers, which the first piece runs. Fault::Usage when the wish
// does not fit.
std::vector<Range> stage_layers(int64_t layers, const StageWish& wish, int64_t seen = 0);

struct PipelinePass {
  int64_t micro_batch;
  bool backward;
  int piece = 0;  // of the stage's
  bool operator==(const PipelinePass&) const = default;
};

// 1F1B: as many forward passes as there are stages behind this one, then one forward and one backward by turns, then
// the backward passes that are left. So a stage keeps the activations of `stages - stage` micro-batches at most. With
// several pieces as many micro-batches as there are stages, or some more, go through one after the other, so that a
// stage waits for the first of its pieces only, and keeps more (passes_kept).
std::vector<PipelinePass> one_forward_one_backward(int stage, int stages, int64_t micro_batches, int pieces = 1);
// The most passes whose activations a stage keeps at a time, each of one of its pieces.
int64_t passes_kept(int64_t stage, int64_t stages, int64_t micro_batches, int64_t pieces);

}  // namespace apus
