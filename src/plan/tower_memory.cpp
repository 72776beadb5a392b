// SPDX-License-Identifier: Apache-2.0
// Follows models/towers/vision_tower: D is the tower's width, F its feed-forward's.
#include "plan/tower_memory.h"

#include <algorithm>

#include "models/spec/canvas_spec.h"
#include "models/spec/seeing_spec.h"
#include "plan/plan.h"

namespace apus {

TowerUse tower_use(const VisionSpec& tower, double patches, double element, bool trained, bool again) {
  const auto d = static_cast<double>(tower.width), f = static_cast<double>(tower.ffn);
  // Two norms, queries, keys and values as they came and turned, what attention gave, the sum behind it, the input.
  const double attention = (tower.turned ? 10 : 8) * d;
  // Gate, up, what the activation gave, their product; without a gate two, and of quick gelu the sigmoid and its
  // argument besides.
  const double feed_forward = (tower.names.gate ? 4 : tower.act == TowerActivation::QuickGelu ? 4 : 2) * f;
  const double layer = attention + feed_forward, pixels = static_cast<double>(tower.patch_numbers());
  const double width = patches * element;
  const double read = patches * pixels * (4 + element);  // as they came, and in the tower's numbers
  if (!trained) return {0, std::max(read, width * (std::max(attention, 3 * d + feed_forward)))};
  const auto layers = static_cast<double>(tower.layers);
  const double kept = patches * pixels * element + width * (again ? layers * d : layers * layer);
  return {kept, std::max(patches * pixels * 4, width * ((again ? layer : 0) + d + std::max(3 * d, 2 * f)))};
}

void PlanSpec::count_media(const MediaFacts& media) {
  train.media_cache = static_cast<double>(media.cached_bytes);
  if (!model.seeing || media.tokens == 0) return;
  const double share = packed ? static_cast<double>(row_tokens) / static_cast<double>(media.longest) : 1;
  const auto merge = static_cast<double>(model.seeing->vision.merge);
  // A slice of MiniCPM-V has some 1024 patches.
  const int64_t queries = model.seeing->vision.resampler.queries;
  const double patches_a_token = model.seeing->canvas ? static_cast<double>(model.seeing->canvas->rows())
                                 : model.seeing->page ? 16
                                 : queries > 0        ? 1024.0 / static_cast<double>(queries)
                                                      : merge * merge;
  train.patches = static_cast<double>(rows * row_copies * media.tokens) * share * patches_a_token;
}

}  // namespace apus
