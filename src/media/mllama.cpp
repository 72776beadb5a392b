// SPDX-License-Identifier: Apache-2.0
// Llama 3.2 Vision: a picture on the canvas of up to four square tiles that it fills best, its shape kept, the rest
// black. One token stands for it.
#include "base/error.h"
#include "media/canvas.h"
#include "media/square.h"

namespace apus {

namespace {

class MllamaProcessor : public MediaProcessor {
 public:
  explicit MllamaProcessor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        scale_(pixel_scale(c.preprocessor, kHalfScale)),
        filter_(pixel_filter(c.preprocessor, Filter::Bilinear)),
        side_(of_tower(c, "image_size", 448)),
        token_(c.token("<|image|>", "image_token_index")) {
    const int64_t tiles = of_tower(c, "max_num_tiles", 4);
    const Json& file = c.preprocessor;
    const int64_t most = file.is_object() ? file.value("max_image_tiles", tiles) : tiles;
    require(side_ > 0 && tiles > 0 && tiles <= 1024 && most == tiles, Fault::Model,
            "preprocessor_config.json: max_image_tiles ", most, " must be the tower's max_num_tiles, ", tiles);
    const Json size = file.is_object() ? file.value("size", Json()) : Json();
    for (const char* each : {"height", "width"})
      require(!size.is_object() || size.value(each, side_) == side_, Fault::Model,
              "preprocessor_config.json: size must be that of the tower's tiles, ", side_, " x ", side_);
    for (int64_t rows = 1; rows <= tiles; ++rows)
      for (int64_t columns = 1; columns <= tiles / rows; ++columns) canvases_.push_back({columns, rows});
  }
  ImageSize seen_size(ImageSize size) const override { return size_on_canvas(size, canvas_of(size), side_); }
  std::vector<int32_t> media_tokens() const override { return {token_}; }
  std::string grid_name(MediaType) const override { return ""; }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    const ImageSize own{image.width, image.height}, size = seen_size(own);
    const TileGrid canvas = canvas_of(own);
    std::vector<Image> tiles;
    add_tiles(laid_on(resized(image, size.width, size.height, filter_), {canvas.columns * side_, canvas.rows * side_},
                      0, 0, {}),
              side_, side_, tiles);
    return tiles;
  }
  PreparedMedia prepared_image(const Image& image) const override {
    const std::vector<Image> tiles = seen(image);
    const TileGrid canvas = canvas_of({image.width, image.height});
    auto content = std::make_shared<MediaContent>();
    content->values = pixel_planes(tiles, scale_);
    content->shape = {static_cast<int64_t>(tiles.size()), 3, side_, side_};
    content->came_as = {canvas.rows, canvas.columns};
    content->digest = content_digest(*content, str("mllama ", form_text(scale_)), tiles);
    return {content, "<|image|>", token_, {{token_}}};
  }

 private:
  TileGrid canvas_of(ImageSize size) const { return canvas_for<double>(canvases_, size, side_); }

  PixelScale scale_;
  Filter filter_;
  int64_t side_;
  int32_t token_;
  std::vector<TileGrid> canvases_;
};

const RegisterMediaFamily mllama({"mllama"},
                                 [](const MediaCheckpoint& c) { return std::make_shared<MllamaProcessor>(c); });

}  // namespace
}  // namespace apus
