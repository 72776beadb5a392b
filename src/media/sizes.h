// SPDX-License-Identifier: Apache-2.0
// Which size a model sees a picture in.
#pragma once

#include <cstdint>
#include <vector>

namespace apus {

struct ImageSize {
  int64_t width = 0, height = 0;
  bool operator==(const ImageSize& other) const { return width == other.width && height == other.height; }
};

// What two convolutions that halve a side leave of so many patches.
inline int64_t halved_twice(int64_t side) { return ((side + 1) / 2 + 1) / 2; }

struct SizeLimits {
  int64_t factor = 28;  // both sides become multiples of it
  int64_t min_pixels = 0, max_pixels = 0;
};

// smart_resize of transformers and qwen-vl-utils: near to the picture's own size and shape, within the limits.
// Fault::Data for one side more than 200 times the other.
ImageSize smart_size(ImageSize size, const SizeLimits& limits);
// Of Qwen3-VL's videos, whose limits count the pixels of all frames.
ImageSize smart_video_size(int64_t frames, ImageSize size, const SizeLimits& limits, int64_t frames_a_patch = 2);
// Of GLM-4.1V, whose limits count all frames too (of an image a whole patch of them). Small ones become larger.
ImageSize glm_size(int64_t frames, ImageSize size, const SizeLimits& limits, int64_t frames_a_patch);
// Of Kimi-VL, which makes pictures smaller until they have no more patches than that; not yet of whole cells.
ImageSize kimi_size(ImageSize size, int64_t patch, int64_t most_patches, int64_t most_a_side);
// Of Gemma 4, whose pictures have as many patches as fit, whole cells of `cell` pixels a side.
ImageSize gemma4_size(ImageSize size, int64_t patch, int64_t cell, int64_t most_patches);
// Of Ovis2.5, which takes every shape.
ImageSize ovis_size(ImageSize size, const SizeLimits& limits);

// InternVL's tiles: the grid of `least` to `most` squares whose shape is nearest to the picture's.
struct TileGrid {
  int64_t columns = 1, rows = 1;
};
TileGrid tile_grid(ImageSize size, int64_t least, int64_t most, int64_t side);

}  // namespace apus
