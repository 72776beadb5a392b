// SPDX-License-Identifier: Apache-2.0
// Llama 4: a picture in a grid of square tiles that it fills best, its shape kept, and all of it once more in one tile.
#include <algorithm>

#include "base/error.h"
#include "media/canvas.h"
#include "media/square.h"

namespace apus {

namespace {

class Llama4Processor : public MediaProcessor {
 public:
  explicit Llama4Processor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        scale_(pixel_scale(c.preprocessor, kHalfScale)),
        filter_(pixel_filter(c.preprocessor, Filter::Bilinear)),
        side_(of_tower(c, "image_size", 336)),
        token_(c.token("<|patch|>", "image_token_index")) {
    const Json& file = c.preprocessor;
    if (file.is_object())
      most_ = file.value("max_patches", most_), largest_ = file.value("resize_to_max_canvas", false);
    const int64_t patch = std::max<int64_t>(of_tower(c, "patch_size", 14), 1), cells = side_ / patch / 2;
    require(most_ > 0 && most_ <= 1024 && cells > 0, Fault::Model, "preprocessor_config.json: max_patches ", most_,
            " must be from 1 to 1024; tiles of ", side_, " pixels in patches of ", patch);
    tokens_ = cells * cells;
    grids_ = grids_of(most_);
  }
  ImageSize seen_size(ImageSize size) const override { return fitted(size, grid_for(size)); }
  std::vector<int32_t> media_tokens() const override { return {token_}; }
  std::string grid_name(MediaType) const override { return ""; }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    const ImageSize own{image.width, image.height};
    const TileGrid grid = grid_for(own);
    const ImageSize size = fitted(own, grid);
    const Image large =
        laid_on(resized(image, size.width, size.height, filter_), {grid.columns * side_, grid.rows * side_}, 0, 0, {});
    std::vector<Image> tiles;
    add_tiles(large, side_, side_, tiles);
    if (tiles.size() > 1) tiles.push_back(resized(image, side_, side_, filter_));
    return tiles;
  }
  PreparedMedia prepared_image(const Image& image) const override {
    const std::vector<Image> tiles = seen(image);
    auto content = std::make_shared<MediaContent>();
    content->values = pixel_planes(tiles, scale_);
    content->shape = {static_cast<int64_t>(tiles.size()), 3, side_, side_};
    content->digest = content_digest(*content, str("llama4 ", form_text(scale_)), tiles);
    PreparedMedia out{content, text_of(grid_for({image.width, image.height})), token_, {}};
    for (size_t i = 0; i < tiles.size(); ++i) out.runs.emplace_back(static_cast<size_t>(tokens_), token_);
    return out;
  }

 private:
  // In the order of transformers, which decides between equals: by shape, shapes in the order in which numbers of tiles
  // from the largest on have them.
  static std::vector<TileGrid> grids_of(int64_t most) {
    std::vector<std::vector<TileGrid>> shapes;
    for (int64_t tiles = most; tiles > 0; --tiles)
      for (int64_t rows = 1; rows <= tiles; ++rows) {
        if (tiles % rows != 0) continue;
        const TileGrid grid{tiles / rows, rows};
        const auto alike = std::find_if(shapes.begin(), shapes.end(), [&](const std::vector<TileGrid>& shape) {
          return shape[0].rows * grid.columns == grid.rows * shape[0].columns;
        });
        if (alike == shapes.end())
          shapes.push_back({grid});
        else
          alike->push_back(grid);
      }
    std::vector<TileGrid> all;
    for (const auto& shape : shapes) all.insert(all.end(), shape.begin(), shape.end());
    return all;
  }

  TileGrid grid_for(ImageSize size) const { return canvas_for<float>(grids_, size, side_, largest_); }
  ImageSize fitted(ImageSize size, const TileGrid& grid) const { return size_on_canvas(size, grid, side_, largest_); }
  static std::string text_of(const TileGrid& grid) {
    std::string text = "<|image_start|>";
    for (int64_t y = 0; grid.rows * grid.columns > 1 && y < grid.rows; ++y) {
      for (int64_t x = 0; x < grid.columns; ++x)
        text += x + 1 < grid.columns ? "<|patch|><|tile_x_separator|>" : "<|patch|>";
      text += "<|tile_y_separator|>";
    }
    return text + "<|image|><|patch|><|image_end|>";
  }

  PixelScale scale_;
  Filter filter_;
  int64_t side_, most_ = 16, tokens_ = 0;
  bool largest_ = false;
  int32_t token_;
  std::vector<TileGrid> grids_;
};

const RegisterMediaFamily llama4({"llama4"},
                                 [](const MediaCheckpoint& c) { return std::make_shared<Llama4Processor>(c); });

}  // namespace
}  // namespace apus
