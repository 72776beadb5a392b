// SPDX-License-Identifier: Apache-2.0
#include "media/patches.h"

#include <algorithm>

#include "base/error.h"

namespace apus {

namespace {

using PixelTable = std::array<std::array<float, 256>, 3>;

// Each byte's number, in single precision as the original's arrays are.
PixelTable pixel_table(const PixelScale& scale) {
  PixelTable table;
  for (size_t c = 0; c < 3; ++c)
    for (size_t v = 0; v < 256; ++v) {
      const auto share = static_cast<float>(static_cast<double>(v) * (1.0 / 255.0));
      table[c][v] = (share - static_cast<float>(scale.mean[c])) / static_cast<float>(scale.deviation[c]);
    }
  return table;
}

void check_alike(const std::vector<Image>& images) {
  require(!images.empty(), Fault::Bug, "no pictures");
  for (const Image& image : images)
    require(image.width == images[0].width && image.height == images[0].height, Fault::Bug,
            "pictures of different sizes in one stack");
}

}  // namespace

std::vector<float> patch_rows(const std::vector<Image>& frames, const PatchForm& form, const PixelScale& scale,
                              PatchGrid& grid) {
  check_alike(frames);
  const int64_t width = frames[0].width, height = frames[0].height, p = form.patch, m = form.merge;
  require(width % form.factor() == 0 && height % form.factor() == 0, Fault::Bug, "an image of ", width, " x ", height,
          " pixels has no whole blocks of ", form.factor());
  const auto count = static_cast<int64_t>(frames.size());
  grid = {(count + form.time - 1) / form.time, height / p, width / p};
  const PixelTable table = pixel_table(scale);
  std::vector<float> out(static_cast<size_t>(grid.patches() * form.numbers()));
  float* to = out.data();
  const auto one_patch = [&](int64_t group, int64_t top, int64_t left) {
    for (size_t c = 0; c < 3; ++c)
      for (int64_t t = 0; t < form.time; ++t) {
        const int64_t number = std::min(group * form.time + t, count - 1);
        if (t > 0 && number < group * form.time + t) {  // the last frame again, as a single picture is
          to = std::copy_n(to - p * p, p * p, to);
          continue;
        }
        const Image& frame = frames[static_cast<size_t>(number)];
        for (int64_t y = top; y < top + p; ++y) {
          const uint8_t* from = frame.rgb.data() + (y * width + left) * 3 + c;
          for (int64_t x = 0; x < p; ++x, from += 3) *to++ = table[c][*from];
        }
      }
  };
  for (int64_t group = 0; group < grid.time; ++group)
    for (int64_t block_y = 0; block_y < grid.height; block_y += m)
      for (int64_t block_x = 0; block_x < grid.width; block_x += m)
        for (int64_t y = block_y; y < block_y + m; ++y)
          for (int64_t x = block_x; x < block_x + m; ++x) one_patch(group, y * p, x * p);
  return out;
}

std::vector<float> pixel_planes(const std::vector<Image>& images, const PixelScale& scale) {
  check_alike(images);
  const PixelTable table = pixel_table(scale);
  std::vector<float> out;
  out.reserve(images.size() * images[0].rgb.size());
  for (const Image& image : images)
    for (size_t c = 0; c < 3; ++c)
      for (size_t i = c; i < image.rgb.size(); i += 3) out.push_back(table[c][image.rgb[i]]);
  return out;
}

}  // namespace apus
