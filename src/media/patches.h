// SPDX-License-Identifier: Apache-2.0
// Pixels as the numbers that towers take.
#pragma once

#include <array>
#include <vector>

#include "media/image.h"

namespace apus {

// (byte / 255 - mean) / std of each colour.
struct PixelScale {
  std::array<double, 3> mean{0.5, 0.5, 0.5}, deviation{0.5, 0.5, 0.5};
};

struct PatchForm {
  int64_t patch = 14;  // pixels a side
  int64_t merge = 2;   // patches a side of what becomes one token
  int64_t time = 2;    // frames in a patch
  int64_t factor() const { return patch * merge; }
  int64_t numbers() const { return 3 * time * patch * patch; }
};

struct PatchGrid {
  int64_t time = 0, height = 0, width = 0;
  int64_t patches() const { return time * height * width; }
};

// Rows of `numbers()`: colour, frame, line, column, the slowest first. Patches stand block by block of merge x merge,
// so that what becomes one token stands together. Frames are of one size, a multiple of factor(); the last one is
// repeated where they do not fill a patch.
std::vector<float> patch_rows(const std::vector<Image>& frames, const PatchForm& form, const PixelScale& scale,
                              PatchGrid& grid);

// [images, 3, height, width] of images of one size.
std::vector<float> pixel_planes(const std::vector<Image>& images, const PixelScale& scale);

}  // namespace apus
