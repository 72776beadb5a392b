// SPDX-License-Identifier: Apache-2.0
// One image, video or sound as a model reads it: the numbers that a processor made of it, and the tokens that stand for
// it. Made by the processors of this folder, read by the models that see or hear.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/media_span.h"

namespace apus {

enum class MediaType { Image, Video, Audio };

// Under transformers' names: pixel_values, pixel_values_videos or input_features.
struct MediaContent {
  MediaType type = MediaType::Image;
  // f32, row after row. Patches [patches, numbers of a patch] of models whose images have any size; tiles
  // [tiles, 3, height, width]; of sounds the log-mel spectrogram [mel, frames], without padding.
  std::vector<int64_t> shape;
  std::vector<float> values;
  // Patches over time, height and width (image_grid_thw); zeros where a processor has none.
  std::array<int64_t, 3> grid{};
  // Of a picture that comes as several of other sizes, one behind the other: the grid of each, in place of `grid`.
  std::vector<std::array<int64_t, 3>> grids = {};
  // Of videos: how far two of the grid's steps in time lie apart. 0: not known.
  double seconds_per_grid = 0;
  std::string digest;  // of all this; equal digests mean equal content
  // Of towers that make one row of some patches: these, counted from its first, as many for each row; -1: none.
  std::vector<int32_t> pooled = {};
  int64_t pool = 0;
  // Height and width of the picture as it came, where the order of its rows depends on them; zeros elsewhere.
  std::array<int64_t, 2> came_as{};
};

// In a text: `begin` is the first of its tokens, `length` reaches to behind the last. Other tokens may stand between
// them (a video's time stamps; sounds among a video's frames).
struct MediaItem : MediaSpan {
  std::shared_ptr<const MediaContent> content;  // null in a stored sample, until somebody loads it again
  std::string source;                           // what it was made of, as JSON: by this it can be made again
};

}  // namespace apus
