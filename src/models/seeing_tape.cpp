// SPDX-License-Identifier: Apache-2.0
// What towers leave for the backward pass. Shapes: T tokens of the step, D hidden.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "media/mosaic.h"
#include "models/seeing_decoder.h"

namespace apus {

// Layers of a tower that is frozen keep nothing for a backward pass, so that nothing is won by running them again.
bool SeeingDecoder::trains_layers(bool heard) const {
  const VisionSpec& v = seeing().vision;
  const HearingSpec* h = seeing().hearing.get();
  const std::string layers = heard ? str(h->name, ".", h->layers_name, ".") : str(v.name, ".", v.names.blocks, ".");
  bool trained = false;
  parts_.visit([&](const std::string& name, Param& p) {
    trained |= name.starts_with(layers) && p.data.defined() && p.data.requires_grad();
  });
  return trained;
}

namespace {
// The least that a tower can be given, all noughts.
MediaContent nothing_for(bool heard, const SeeingSpec& seeing) {
  MediaContent nothing;
  const VisionSpec& v = seeing.vision;
  if (heard) {
    const HearingSpec& h = *seeing.hearing;
    nothing.type = MediaType::Audio;
    // Frames of which every part of the tower has something to read.
    nothing.shape = {h.mels, h.tail > 0 ? std::min(h.chunk, h.tail + 4) : h.chunk};
  } else if (v.tile > 0) {
    const int64_t step = v.merge * v.patch, side = seeing.mosaic ? v.tile : step + v.tile % step;
    nothing.shape = {1, v.channels, side, side};
    if (seeing.mobile) nothing.shape = {1, v.channels, v.tile, v.tile};
    if (seeing.canvas) nothing.shape = {1, v.channels, v.tile, v.tile}, nothing.came_as = {1, 1};
    if (seeing.mosaic && seeing.mosaic->in_lines) nothing.shape[0] = 2, nothing.came_as = {side, side};
  } else {
    nothing.grid = {1, v.merge, v.merge}, nothing.shape = {v.merge * v.merge, v.patch_numbers()};
    nothing.pooled = {0}, nothing.pool = 1;
  }
  const int64_t count = std::accumulate(nothing.shape.begin(), nothing.shape.end(), int64_t{1}, std::multiplies<>());
  nothing.values.assign(static_cast<size_t>(count), 0);
  return nothing;
}
}  // namespace

// A tower that is trained takes part in every backward pass, also of texts without its media: ranks that sum gradients
// wait for each other.
at::Tensor SeeingDecoder::with_tower_on_tape(at::Tensor x_TD, bool heard) const {
  const bool sees = tower_ || page_ || canvas_ || mobile_, hears = ears_ || conformer_ || cascade_;
  if (!at::GradMode::is_enabled() || (heard ? !hears : !sees)) return x_TD;
  bool trained = false;
  parts_.visit([&](const std::string& name, Param& p) {
    bool of_ears = !sees || (hears && name.starts_with(seeing().hearing->name + "."));
    if (conformer_) of_ears |= name.starts_with(seeing().hearing->conformer->embedder.name + ".");
    if (cascade_) of_ears |= name.starts_with(seeing().hearing->cascade->home + ".");
    trained |= of_ears == heard && p.data.defined() && p.data.requires_grad();
  });
  if (!trained) return x_TD;
  const Sight sight = see(nothing_for(heard, seeing()));
  at::Tensor sum = sight.row_MD.sum();
  for (const at::Tensor& late : sight.late_MD) sum = sum + late.sum();
  return x_TD + (sum * 0).to(x_TD.device(), x_TD.scalar_type());
}

}  // namespace apus
