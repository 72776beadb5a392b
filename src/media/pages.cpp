// SPDX-License-Identifier: Apache-2.0
// Models that read pages. DeepSeek-OCR 1 and 2: tiles of a page where it is larger than one, and all of it in one
// square on grey. GOT-OCR 2.0: all of it, stretched to one square.
#include <cmath>

#include "base/error.h"
#include "media/mosaic.h"
#include "media/square.h"

namespace apus {

namespace {

Json at_path(const Json& all, std::initializer_list<const char*> path) {
  Json at = all;
  for (const char* key : path) at = at.is_object() && at.contains(key) ? at[key] : Json();
  return at;
}

class PageProcessor : public MediaProcessor {
 public:
  explicit PageProcessor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        scale_(pixel_scale(c.preprocessor, kHalfScale)),
        filter_(pixel_filter(c.preprocessor, Filter::Bicubic)),
        native_(c.config.value("model_type", "") == "deepseek_ocr2"),
        token_(c.token("<image>", "image_token_id")) {
    const Json vision = c.config.value("vision_config", Json::object());
    const Json queries = at_path(vision, {"width", "qwen2-0-5b"});
    lines_end_ = !native_ && !queries.is_object();
    form_ = {.patch = number(at_path(vision, {"sam_config"}), "patch_size",
                             number(at_path(vision, {"width", "sam_vit_b"}), "patch_size", 16)),
             .merge = 1,
             .time = 1};
    side_ = c.settings.get("BASE_SIZE", number(at_path(c.preprocessor, {"size"}), "height", 1024));
    tile_ = c.settings.get("IMAGE_SIZE", number(c.preprocessor, "tile_size", lines_end_ ? 640 : 768));
    least_ = number(c.preprocessor, "min_patches", 2);
    most_ = number(c.preprocessor, "max_patches", lines_end_ ? 9 : 6);
    require(form_.patch > 0 && side_ > 0 && tile_ > 0 && side_ % form_.patch == 0 && tile_ % form_.patch == 0 &&
                side_ <= 8192 && tile_ <= 8192 && least_ >= 1 && most_ >= least_ && most_ <= 1024,
            Fault::Usage, "pages of ", side_, " and tiles of ", tile_, " pixels (BASE_SIZE, IMAGE_SIZE) in patches of ",
            form_.patch, ", ", least_, " to ", most_, " tiles: these do not fit together");
  }
  ImageSize seen_size(ImageSize size) const override {
    const TileGrid grid = grid_for(size);
    return grid.columns * grid.rows > 0 ? ImageSize{grid.columns * tile_, grid.rows * tile_} : fitted(size);
  }
  std::vector<int32_t> media_tokens() const override { return {token_}; }
  std::string grid_name(MediaType) const override { return ""; }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    std::vector<Image> views;
    const ImageSize own{image.width, image.height};
    const TileGrid grid = grid_for(own);
    if (grid.rows > 0) add_tiles(resized(image, grid.columns * tile_, grid.rows * tile_, filter_), tile_, tile_, views);
    if (!native_) {
      views.push_back(padded(image, {side_, side_}, filter_, {127, 127, 127}));
      return views;
    }
    const ImageSize size = fitted(own);
    views.push_back(laid_on(resized(image, size.width, size.height, filter_), {side_, side_}, (side_ - size.width) / 2,
                            (side_ - size.height) / 2, {127, 127, 127}));
    return views;
  }
  PreparedMedia prepared_image(const Image& image) const override {
    auto content = std::make_shared<MediaContent>();
    const TileGrid grid = grid_for({image.width, image.height});
    content->came_as = {grid.rows, grid.columns};
    fill_with_pictures(*content, seen(image), form_, scale_, "pages");
    const int64_t whole = rows_of(side_), tile = rows_of(tile_), ends = lines_end_ ? 1 : 0;
    const int64_t tokens = whole * (whole + ends) + grid.rows * tile * (grid.columns * tile + ends) + 1;
    PreparedMedia out{content, "<image>\n", token_, {}};
    out.runs.emplace_back(static_cast<size_t>(tokens), token_);
    return out;
  }

 private:
  static int64_t number(const Json& in, const char* key, int64_t otherwise) {
    return in.is_object() && in.contains(key) && in[key].is_number_integer() ? in[key].get<int64_t>() : otherwise;
  }
  // A sixteenth of the patches is left.
  int64_t rows_of(int64_t side) const { return halved_twice(side / form_.patch); }
  TileGrid grid_for(ImageSize size) const {
    if (size.width <= tile_ && size.height <= tile_) return {0, 0};
    return tile_grid(size, least_, most_, tile_);
  }
  ImageSize fitted(ImageSize size) const {
    if (!native_) return contained_size(size, {side_, side_});
    const int64_t longer = std::max(size.width, size.height);
    const auto side = [&](int64_t n) {
      if (n == longer) return side_;
      const double share = static_cast<double>(side_) / static_cast<double>(longer);
      return std::max<int64_t>(1, static_cast<int64_t>(std::nearbyint(static_cast<double>(n) * share)));
    };
    return {side(size.width), side(size.height)};
  }

  PixelScale scale_;
  Filter filter_;
  bool native_, lines_end_ = true;
  int32_t token_;
  PatchForm form_;
  int64_t side_, tile_, least_, most_;
};

class GotProcessor : public MediaProcessor {
 public:
  explicit GotProcessor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        scale_(pixel_scale(c.preprocessor, kClipScale)),
        filter_(pixel_filter(c.preprocessor, Filter::Bicubic)),
        side_(of_tower(c, "image_size", 1024)),
        form_{.patch = of_tower(c, "patch_size", 16), .merge = 1, .time = 1},
        token_(c.token("<imgpad>", "image_token_index")) {
    require(form_.patch > 0 && side_ > 0 && side_ <= 8192 && side_ % form_.patch == 0, Fault::Model, "pictures of ",
            side_, " pixels in patches of ", form_.patch, ": check config.json");
    const Json& file = c.preprocessor;
    require(!file.is_object() || !file.value("crop_to_patches", false), Fault::Model,
            "preprocessor_config.json: crop_to_patches true is not supported; set it to false");
  }
  ImageSize seen_size(ImageSize) const override { return {side_, side_}; }
  std::vector<int32_t> media_tokens() const override { return {token_}; }
  std::string grid_name(MediaType) const override { return ""; }

 protected:
  std::vector<Image> seen(const Image& image) const override { return {resized(image, side_, side_, filter_)}; }
  PreparedMedia prepared_image(const Image& image) const override {
    auto content = std::make_shared<MediaContent>();
    fill_with_patches(*content, seen(image), form_, scale_, "got");
    PreparedMedia out{content, "<img><imgpad></img>\n", token_, {}};
    const int64_t rows = halved_twice(side_ / form_.patch);
    out.runs.emplace_back(static_cast<size_t>(rows * rows), token_);
    return out;
  }

 private:
  PixelScale scale_;
  Filter filter_;
  int64_t side_;
  PatchForm form_;
  int32_t token_;
};

std::shared_ptr<const MediaProcessor> make_pages(const MediaCheckpoint& c) {
  return std::make_shared<PageProcessor>(c);
}

// DeepSeek-VL2's files have the name of DeepSeek-OCR's.
std::shared_ptr<const MediaProcessor> make_own_pages(const MediaCheckpoint& c) {
  return is_deepseek_vl2(c.config) ? (*Registry<MakeMediaProcessor>::of().find("deepseek_vl2"))(c) : make_pages(c);
}

const RegisterMediaFamily pages({"deepseek_ocr2"}, make_pages);
const RegisterMediaFamily own_pages({"deepseek_vl_v2"}, make_own_pages);
const RegisterMediaFamily got({"got_ocr2", "GOT"},
                              [](const MediaCheckpoint& c) { return std::make_shared<GotProcessor>(c); });

}  // namespace
}  // namespace apus
