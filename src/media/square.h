// SPDX-License-Identifier: Apache-2.0
// A picture as one square, as preprocessor_config.json asks for it: stretched to it, or the middle of what its shorter
// side was brought to.
#pragma once

#include <nlohmann/json.hpp>

#include "media/pixel_form.h"
#include "media/processor.h"

namespace apus {

class SquareForm {
 public:
  // `side`: of the tower's squares. Fault::Model where the file makes others.
  SquareForm(const MediaCheckpoint& c, const PixelScale& scale, Filter filter, int64_t side);
  Image operator()(const Image& image) const;
  // The size of the whole picture before its middle is taken.
  ImageSize whole(ImageSize size) const;
  // [squares, 3, side, side]
  std::shared_ptr<MediaContent> content(const std::vector<Image>& squares, const std::string& form) const;
  Filter filter() const { return filter_; }
  int64_t side() const { return side_; }

 private:
  PixelScale scale_;
  Filter filter_;
  int64_t side_;
  std::optional<int64_t> short_side_;  // none: the picture is stretched
  bool padded_ = false;                // to a square, before anything else
};

// vision_config's image_size, patch_size and so on.
int64_t of_tower(const MediaCheckpoint& c, const char* name, int64_t otherwise);

// image_mean as a colour.
std::array<uint8_t, 3> mean_colour(const PixelScale& scale);
// As large as the ground allows, and in its middle, as Pillow's ImageOps.contain and pad round it.
ImageSize contained_size(ImageSize own, ImageSize ground);
Image padded(const Image& image, ImageSize ground, Filter filter, std::array<uint8_t, 3> colour);
// All of a picture in one square, out of its numbers, and behind it the squares that the picture is made of:
// [1 + squares, 3, side, side].
std::shared_ptr<MediaContent> whole_and_squares(const Image& picture, int64_t side, const PixelScale& scale);
// A picture on a larger ground.
Image laid_on(const Image& image, ImageSize ground, int64_t left, int64_t top, std::array<uint8_t, 3> colour);

}  // namespace apus
