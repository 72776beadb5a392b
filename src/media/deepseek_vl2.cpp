// SPDX-License-Identifier: Apache-2.0
// DeepSeek-VL2: a picture in one square that its longer side fills, and once more, larger, in a grid of squares; where
// a conversation has more than two pictures, the larger one is one square too.
#include "base/error.h"
#include "media/mosaic.h"
#include "media/square.h"

namespace apus {

namespace {

class DeepseekVl2Processor final : public MediaProcessor {
 public:
  explicit DeepseekVl2Processor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        form_(read_squares_in_lines(c.config)),
        scale_(pixel_scale(c.preprocessor, kHalfScale)),
        filter_(pixel_filter(c.preprocessor, Filter::Bicubic)),
        token_(c.token("<image>", "image_token_id")) {}
  ImageSize seen_size(ImageSize size) const override { return contained_size(size, best_size(size, form_.sizes)); }
  std::vector<int32_t> media_tokens() const override { return {token_}; }
  std::string grid_name(MediaType) const override { return ""; }
  int64_t looks_closer_at() const override { return 2; }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    return squares(image, best_size({image.width, image.height}, form_.sizes));
  }
  PreparedMedia prepared_image(const Image& image) const override {
    return prepared(image, best_size({image.width, image.height}, form_.sizes));
  }
  PreparedMedia prepared_from_afar(const Image& image) const override {
    return prepared(image, {form_.side, form_.side});
  }

 private:
  Image filled(const Image& image, ImageSize ground) const {
    return padded(image, ground, filter_, mean_colour(scale_));
  }
  std::vector<Image> squares(const Image& image, ImageSize ground) const {
    std::vector<Image> out{filled(image, {form_.side, form_.side})};
    add_tiles(filled(image, ground), form_.side, form_.side, out);
    return out;
  }
  PreparedMedia prepared(const Image& image, ImageSize ground) const {
    const std::vector<Image> tiles = squares(image, ground);
    auto content = std::make_shared<MediaContent>();
    content->values = pixel_planes(tiles, scale_);
    content->shape = {std::ssize(tiles), 3, form_.side, form_.side};
    content->came_as = {ground.height, ground.width};
    content->digest = content_digest(*content, str("deepseek_vl2 ", form_text(scale_)), tiles);
    PreparedMedia out{content, "<image>\n", token_, {}};
    out.runs.emplace_back(static_cast<size_t>(mosaic_cells(ground, form_).rows(form_)), token_);
    return out;
  }

  MosaicForm form_;
  PixelScale scale_;
  Filter filter_;
  int32_t token_;
};

// Under the name that DeepSeek-OCR's files have too, which pages.cpp tells apart.
const RegisterMediaFamily deepseek_vl2({"deepseek_vl2"}, [](const MediaCheckpoint& c) {
  return std::make_shared<DeepseekVl2Processor>(c);
});

}  // namespace
}  // namespace apus
