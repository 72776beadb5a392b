// SPDX-License-Identifier: Apache-2.0
#include "media/sizes.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace apus {

namespace {

constexpr int64_t kSteepest = 200;  // one side against the other

// The nearest multiple; halves go to the even one, as Python rounds.
int64_t nearest_multiple(int64_t side, int64_t factor) {
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(side) / static_cast<double>(factor))) * factor;
}
int64_t multiple_below(double side, int64_t factor) {
  return std::max(factor, static_cast<int64_t>(std::floor(side / static_cast<double>(factor))) * factor);
}
int64_t multiple_above(double side, int64_t factor) {
  return static_cast<int64_t>(std::ceil(side / static_cast<double>(factor))) * factor;
}

void check_shape(ImageSize size) {
  require(size.width > 0 && size.height > 0, Fault::Data, "an image of ", size.width, " x ", size.height, " pixels");
  require(std::max(size.width, size.height) <= kSteepest * std::min(size.width, size.height), Fault::Data,
          "an image of ", size.width, " x ", size.height, " pixels: one side is more than ", kSteepest,
          " times the other, and this model takes no such picture");
}

// `counted`: the frames that the limits count, as they will be; `frames`: as they are.
ImageSize within(ImageSize size, const SizeLimits& limits, int64_t frames, int64_t counted) {
  const int64_t f = limits.factor;
  const ImageSize near{nearest_multiple(size.width, f), nearest_multiple(size.height, f)};
  const int64_t pixels = counted * near.width * near.height;
  const auto own = static_cast<double>(frames * size.width * size.height);
  const auto w = static_cast<double>(size.width), h = static_cast<double>(size.height);
  if (pixels > limits.max_pixels) {
    const double shrink = std::sqrt(own / static_cast<double>(limits.max_pixels));
    return {multiple_below(w / shrink, f), multiple_below(h / shrink, f)};
  }
  if (pixels < limits.min_pixels) {
    const double grow = std::sqrt(static_cast<double>(limits.min_pixels) / own);
    return {multiple_above(w * grow, f), multiple_above(h * grow, f)};
  }
  return {std::max(near.width, f), std::max(near.height, f)};
}

}  // namespace

ImageSize smart_size(ImageSize size, const SizeLimits& limits) {
  check_shape(size);
  return within(size, limits, 1, 1);
}

ImageSize smart_video_size(int64_t frames, ImageSize size, const SizeLimits& limits, int64_t frames_a_patch) {
  check_shape(size);
  require(std::min(size.width, size.height) >= limits.factor, Fault::Data, "frames of ", size.width, " x ", size.height,
          " pixels: this model needs sides of ", limits.factor, " at least");
  return within(size, limits, frames, (frames + frames_a_patch - 1) / frames_a_patch * frames_a_patch);
}

ImageSize glm_size(int64_t frames, ImageSize size, const SizeLimits& limits, int64_t frames_a_patch) {
  require(size.width > 0 && size.height > 0, Fault::Data, "an image of ", size.width, " x ", size.height, " pixels");
  if (std::min(size.width, size.height) < limits.factor) {
    const auto grown = [by = static_cast<double>(limits.factor) /
                             static_cast<double>(std::min(size.width, size.height))](int64_t side) {
      return static_cast<int64_t>(static_cast<double>(side) * by);
    };
    size = {grown(size.width), grown(size.height)};
  }
  check_shape(size);
  return within(size, limits, frames, nearest_multiple(frames, frames_a_patch));
}

ImageSize kimi_size(ImageSize size, int64_t patch, int64_t most_patches, int64_t most_a_side) {
  require(size.width > 0 && size.height > 0, Fault::Data, "an image of ", size.width, " x ", size.height, " pixels");
  const auto of = [](int64_t n) { return static_cast<double>(n); };
  const int64_t patches = std::max<int64_t>(size.width / patch, 1) * std::max<int64_t>(size.height / patch, 1);
  const int64_t longest = most_a_side * patch;
  const double scale = std::min(
      {1.0, std::sqrt(of(most_patches) / of(patches)), of(longest) / of(size.height), of(longest) / of(size.width)});
  const auto scaled = [&](int64_t side) {
    return std::min(longest, std::max<int64_t>(1, static_cast<int64_t>(of(side) * scale)));
  };
  return {scaled(size.width), scaled(size.height)};
}

ImageSize gemma4_size(ImageSize size, int64_t patch, int64_t cell, int64_t most_patches) {
  require(size.width > 0 && size.height > 0, Fault::Data, "an image of ", size.width, " x ", size.height, " pixels");
  const auto width = static_cast<double>(size.width), height = static_cast<double>(size.height);
  const double factor = std::sqrt(static_cast<double>(most_patches * patch * patch) / (height * width));
  const auto cells = [&](double side) {
    return static_cast<int64_t>(std::floor(factor * side / static_cast<double>(cell)));
  };
  ImageSize out{cells(width) * cell, cells(height) * cell};
  // A picture so steep that one side would vanish has one row of cells.
  const int64_t longest = most_patches / ((cell / patch) * (cell / patch)) * cell;
  const auto along = [&](int64_t large, int64_t small) { return std::min(large / small * cell, longest); };
  if (out.height == 0 && out.width > 0) out = {along(size.width, size.height), cell};
  if (out.width == 0 && out.height > 0) out = {cell, along(size.height, size.width)};
  require(out.width > 0 && out.height > 0, Fault::Model, "pictures of ", most_patches,
          " patches have no whole cell of ", cell, " pixels: check max_soft_tokens in preprocessor_config.json");
  return out;
}

ImageSize ovis_size(ImageSize size, const SizeLimits& limits) {
  require(size.width > 0 && size.height > 0, Fault::Data, "an image of ", size.width, " x ", size.height, " pixels");
  int64_t& small = size.width < size.height ? size.width : size.height;
  int64_t& large = size.width < size.height ? size.height : size.width;
  if (small < limits.factor) {
    large = static_cast<int64_t>(
        std::nearbyint(static_cast<double>(limits.factor) / static_cast<double>(small) * static_cast<double>(large)));
    small = limits.factor;
  } else {
    large = std::min(large, kSteepest * small);
  }
  return within(size, limits, 1, 1);
}

TileGrid tile_grid(ImageSize size, int64_t least, int64_t most, int64_t side) {
  require(size.width > 0 && size.height > 0 && least >= 1 && most >= least, Fault::Data, "no tiles for an image of ",
          size.width, " x ", size.height, " pixels (", least, " to ", most, " tiles)");
  std::vector<TileGrid> grids;
  for (int64_t columns = 1; columns <= most; ++columns)
    for (int64_t rows = 1; rows * columns <= most; ++rows)
      if (rows * columns >= least) grids.push_back({columns, rows});
  std::stable_sort(grids.begin(), grids.end(),
                   [](const TileGrid& a, const TileGrid& b) { return a.columns * a.rows < b.columns * b.rows; });
  const double shape = static_cast<double>(size.width) / static_cast<double>(size.height);
  const double area = static_cast<double>(size.width) * static_cast<double>(size.height);
  TileGrid best;
  double distance = INFINITY;
  for (const TileGrid& grid : grids) {
    const double off = std::abs(shape - static_cast<double>(grid.columns) / static_cast<double>(grid.rows));
    const double half = 0.5 * static_cast<double>(side * side * grid.columns * grid.rows);
    if (off < distance || (off == distance && area > half)) best = grid, distance = off;
  }
  return best;
}

}  // namespace apus
