// SPDX-License-Identifier: Apache-2.0
// Ovis 1.6 and 2: a picture as the fewest square tiles that show nine tenths of its area, and before them all of it in
// one. In their own files each tile keeps its shape within a square; transformers' layout stretches.
#include <algorithm>

#include "base/error.h"
#include "media/square.h"
#include "text/tokenizer.h"

namespace apus {

namespace {

// What stands in the text for the tiles: atoms, and marks before all, behind the first tile, between columns, between
// rows, behind all.
struct OvisWords {
  int32_t atom, begin, grid, column, row, end;
};

struct Area {
  int64_t left, top, right, bottom;
};

std::vector<Area> areas_of(ImageSize size, const TileGrid& grid) {
  const int64_t width = size.width / grid.columns, height = size.height / grid.rows;
  std::vector<Area> all;
  for (int64_t y = 0; y < grid.rows; ++y)
    for (int64_t x = 0; x < grid.columns; ++x)
      all.push_back({x * width, y * height, x + 1 == grid.columns ? size.width : (x + 1) * width,
                     y + 1 == grid.rows ? size.height : (y + 1) * height});
  return all;
}

// How many of its pixels a square of `side` shows.
double shown(const Area& a, double side) {
  const auto w = static_cast<double>(a.right - a.left), h = static_cast<double>(a.bottom - a.top);
  const double longer = std::max(w, h), shorter = std::min(w, h);
  return longer > side ? side * (shorter / longer * side) : longer * shorter;
}

constexpr double kEnough = 0.9;

TileGrid covering_grid(ImageSize size, int64_t most, int64_t side) {
  const double area = static_cast<double>(size.width) * static_cast<double>(size.height);
  TileGrid best;
  double of_best = -1;
  for (int64_t rows = 1; rows <= most; ++rows)
    for (int64_t columns = 1; rows * columns <= most; ++columns) {
      const TileGrid grid{columns, rows};
      double covered = 0;
      for (const Area& a : areas_of(size, grid)) covered += shown(a, static_cast<double>(side));
      covered /= area;
      const int64_t tiles = rows * columns, so_far = best.rows * best.columns;
      const bool fewer = tiles < so_far || (tiles == so_far && covered > of_best);
      const bool more = covered > of_best || (covered == of_best && tiles < so_far);
      const bool enough = covered > kEnough, best_enough = of_best > kEnough;
      if (enough != best_enough ? enough : enough ? fewer : more) best = grid, of_best = covered;
    }
  return best;
}

class OvisTiles : public MediaProcessor {
 public:
  // `vision`: where config.json has image_size and patch_size.
  OvisTiles(const MediaCheckpoint& c, const Json& vision, const Json& words, const OvisWords& marks, bool stretched)
      : MediaProcessor(c.max_pixels),
        scale_(pixel_scale(c.preprocessor, kClipScale)),
        filter_(pixel_filter(c.preprocessor, Filter::Bicubic)),
        marks_(marks),
        stretched_(stretched) {
    side_ = number(vision, "image_size", 224);
    const int64_t patch = number(vision, "patch_size", 14), join = number(words, "hidden_stride", 1);
    require(patch > 0 && join > 0 && side_ >= patch && side_ <= 8192, Fault::Model, "tiles of ", side_,
            " pixels in patches of ", patch, ", joined by ", join, ": check config.json");
    const int64_t cells = (side_ / patch + join - 1) / join;
    tokens_ = cells * cells;
    most_ = stretched ? number(c.preprocessor, "max_patches", 12) : c.settings.get("MAX_PARTITION", 9);
    if (stretched && !(c.preprocessor.is_object() && c.preprocessor.value("crop_to_patches", false))) most_ = 1;
    require(most_ >= 1 && most_ <= 256, Fault::Usage, "from 1 to 256 tiles, not ", most_, ": check ",
            stretched ? "max_patches in preprocessor_config.json" : "MAX_PARTITION");
  }
  ImageSize seen_size(ImageSize size) const override {
    const TileGrid grid = grid_for(size);
    return {grid.columns * side_, grid.rows * side_};
  }
  std::vector<int32_t> media_tokens() const override {
    return {marks_.atom, marks_.begin, marks_.grid, marks_.column, marks_.row, marks_.end};
  }
  std::string values_name(MediaType) const override { return "pixel_values"; }
  std::string grid_name(MediaType) const override { return ""; }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    const TileGrid grid = grid_for({image.width, image.height});
    std::vector<Image> tiles;
    if (stretched_) {
      if (grid.columns * grid.rows > 1) tiles.push_back(resized(image, side_, side_, filter_));
      add_tiles(resized(image, grid.columns * side_, grid.rows * side_, filter_), side_, side_, tiles);
      return tiles;
    }
    if (grid.columns * grid.rows > 1) tiles.push_back(in_shape(image));
    for (const Area& a : areas_of({image.width, image.height}, grid))
      tiles.push_back(in_shape(cropped(image, a.left, a.top, a.right - a.left, a.bottom - a.top)));
    return tiles;
  }
  PreparedMedia prepared_image(const Image& image) const override {
    const std::vector<Image> tiles = seen(image);
    auto content = std::make_shared<MediaContent>();
    content->shape = {static_cast<int64_t>(tiles.size()), 3, side_, side_};
    for (const Image& tile : tiles) {
      const std::vector<float> own = on_noughts(tile);
      content->values.insert(content->values.end(), own.begin(), own.end());
    }
    content->digest = content_digest(*content, str("ovis tiles ", form_text(scale_)), tiles);
    return {content, text_, place_, {run_for(grid_for({image.width, image.height}))}};
  }
  void stand_for(const std::string& text, int32_t place) { text_ = text, place_ = place; }

 private:
  static int64_t number(const Json& in, const char* key, int64_t otherwise) {
    return in.is_object() && in.contains(key) && in[key].is_number_integer() ? in[key].get<int64_t>() : otherwise;
  }
  // What transformers takes for columns are the rows of the grid that it found.
  TileGrid grid_for(ImageSize size) const {
    const TileGrid grid = covering_grid(size, most_, side_);
    return stretched_ ? TileGrid{grid.rows, grid.columns} : grid;
  }
  Image in_shape(const Image& image) const {
    const int64_t longer = std::max(image.width, image.height);
    const auto fitted = [&](int64_t side) {
      if (side == longer) return side_;
      const double share = static_cast<double>(side) / static_cast<double>(longer);
      return std::max<int64_t>(1, static_cast<int64_t>(share * static_cast<double>(side_)));
    };
    return resized(image, fitted(image.width), fitted(image.height), filter_);
  }
  // [3, side, side], the picture in the middle.
  std::vector<float> on_noughts(const Image& tile) const {
    const std::vector<float> own = pixel_planes({tile}, scale_);
    if (tile.width == side_ && tile.height == side_) return own;
    std::vector<float> all(static_cast<size_t>(3 * side_ * side_), 0.0f);
    const int64_t left = (side_ - tile.width) / 2, top = (side_ - tile.height) / 2;
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t y = 0; y < tile.height; ++y)
        std::copy_n(own.begin() + (c * tile.height + y) * tile.width, tile.width,
                    all.begin() + (c * side_ + top + y) * side_ + left);
    return all;
  }
  std::vector<int32_t> run_for(const TileGrid& grid) const {
    std::vector<int32_t> run{marks_.begin};
    const auto add_atoms = [&] { run.insert(run.end(), static_cast<size_t>(tokens_), marks_.atom); };
    add_atoms();
    run.push_back(marks_.grid);
    for (int64_t y = 0; grid.rows * grid.columns > 1 && y < grid.rows; ++y) {
      for (int64_t x = 0; x < grid.columns; ++x) {
        add_atoms();
        if (x + 1 < grid.columns) run.push_back(marks_.column);
      }
      if (y + 1 < grid.rows) run.push_back(marks_.row);
    }
    run.push_back(marks_.end);
    return run;
  }

  PixelScale scale_;
  Filter filter_;
  OvisWords marks_;
  bool stretched_;
  int64_t side_ = 0, tokens_ = 0, most_ = 1;
  std::string text_;
  int32_t place_ = 0;
};

Json object_in(const Json& all, const char* key) {
  return all.is_object() && all.contains(key) ? all[key] : Json::object();
}

// Its visual tokens are numbers that no tokenizer knows; one that no text has holds their place until then.
class OvisOwnTiles : public OvisTiles {
 public:
  explicit OvisOwnTiles(const MediaCheckpoint& c)
      : OvisTiles(c, object_in(object_in(c.config, "visual_tokenizer_config"), "backbone_config"),
                  object_in(c.config, "visual_tokenizer_config"), {-300, -301, -302, -303, -304, -305}, false) {
    for (const char* token : {"<|image_pad|>", "<unused99>", "<|reserved_special_token_0|>"}) {
      if (c.tokenizer && !c.tokenizer->id(token)) continue;
      stand_for(str(token, "\n"), c.tokenizer ? static_cast<int32_t>(*c.tokenizer->id(token)) : 0);
      return;
    }
    fail(Fault::Model,
         "the tokenizer knows none of <|image_pad|>, <unused99> and <|reserved_special_token_0|>, one of which holds a "
         "picture's place: its files belong to another model");
  }
};

class Ovis2Tiles : public OvisTiles {
 public:
  explicit Ovis2Tiles(const MediaCheckpoint& c)
      : OvisTiles(c, object_in(c.config, "vision_config"), object_in(c.config, "vision_config"),
                  {c.token("<IMG_ATOM>", "image_token_id"), c.token("<IMG_START>", ""), c.token("<IMG_GRID>", ""),
                   c.token("<IMG_COL>", ""), c.token("<IMG_ROW>", ""), c.token("<IMG_END>", "")},
                  true) {
    stand_for("<IMG_ATOM>\n", media_tokens()[0]);
  }
};

const RegisterMediaFamily ovis_own({"ovis"},
                                   [](const MediaCheckpoint& c) { return std::make_shared<OvisOwnTiles>(c); });
const RegisterMediaFamily ovis2({"ovis2"}, [](const MediaCheckpoint& c) { return std::make_shared<Ovis2Tiles>(c); });

}  // namespace
}  // namespace apus
