// SPDX-License-Identifier: Apache-2.0
// Phi-3-vision: a picture as wide (or as high) as so many squares that no more than num_crops show it, filled up with
// white to whole squares; and all of that in one square more, out of its numbers.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "media/mosaic.h"
#include "media/square.h"

namespace apus {

namespace {

Image mirrored_diagonally(const Image& image) {
  Image out{image.height, image.width, std::vector<uint8_t>(image.rgb.size())};
  for (int64_t y = 0; y < image.height; ++y)
    for (int64_t x = 0; x < image.width; ++x)
      std::copy_n(image.rgb.begin() + 3 * (y * image.width + x), 3, out.rgb.begin() + 3 * (x * image.height + y));
  return out;
}

class Phi3VProcessor final : public MediaProcessor {
 public:
  explicit Phi3VProcessor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        side_(of_tower(c, "image_size", 336)),
        form_{.sizes = {},
              .side = side_,
              .cells = side_ / std::max<int64_t>(2 * of_tower(c, "patch_size", 14), 1),
              .in_lines = true,
              .whole_last = true},
        most_(c.whole("num_crops", "img_processor", "num_crops", 16)),
        scale_(pixel_scale(c.preprocessor, kClipScale)),
        token_(c.token("<|image|>", "image_token_id")) {
    require(most_ > 0 && most_ <= 1024 && side_ > 0 && form_.cells > 0, Fault::Model,
            "preprocessor_config.json: num_crops is ", most_, ", and squares have ", side_, " pixels");
  }
  ImageSize seen_size(ImageSize size) const override {
    const ImageSize own = fitted(size);
    return {whole_squares(own.width), whole_squares(own.height)};
  }
  std::vector<int32_t> media_tokens() const override { return {token_}; }
  std::string grid_name(MediaType) const override { return ""; }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    const bool high = image.width < image.height;
    const Image lying = high ? mirrored_diagonally(image) : image;
    const ImageSize size = fitted({lying.width, lying.height}), ground = seen_size({lying.width, lying.height});
    const Image filled = laid_on(resized(lying, size.width, size.height, Filter::Bilinear), ground, 0,
                                 (ground.height - size.height) / 2, {255, 255, 255});
    return {high ? mirrored_diagonally(filled) : filled};
  }
  PreparedMedia prepared_image(const Image& image) const override {
    const Image large = seen(image).front();
    const auto content = whole_and_squares(large, side_, scale_);
    content->came_as = {large.height, large.width};
    content->digest = content_digest(*content, str("phi3_v ", form_text(scale_)), {large});
    PreparedMedia out{content, "<|image|><s>\n", token_, {}};
    out.runs.emplace_back(static_cast<size_t>(mosaic_cells({large.width, large.height}, form_).rows(form_)), token_);
    return out;
  }

 private:
  int64_t whole_squares(int64_t length) const { return (length + side_ - 1) / side_ * side_; }
  // As many squares along the longer side as so many of them allow.
  ImageSize fitted(ImageSize size) const {
    const bool high = size.width < size.height;
    const double ratio =
        static_cast<double>(std::max(size.width, size.height)) / static_cast<double>(std::min(size.width, size.height));
    int64_t squares = 1;
    while (static_cast<double>(squares) * std::ceil(static_cast<double>(squares) / ratio) <= static_cast<double>(most_))
      ++squares;
    const int64_t longer = std::max<int64_t>(squares - 1, 1) * side_;
    const int64_t shorter = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(longer) / ratio));
    return high ? ImageSize{shorter, longer} : ImageSize{longer, shorter};
  }

  int64_t side_;
  MosaicForm form_;
  int64_t most_;
  PixelScale scale_;
  int32_t token_;
};

const RegisterMediaFamily phi3_v({"phi3_v"},
                                 [](const MediaCheckpoint& c) { return std::make_shared<Phi3VProcessor>(c); });

}  // namespace
}  // namespace apus
