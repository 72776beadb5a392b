// SPDX-License-Identifier: Apache-2.0
// LFM2-VL: a picture near its own size, or, where it is much larger, square tiles of it and all of it once more.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "media/pixel_form.h"
#include "media/processor.h"

namespace apus {

namespace {

class Lfm2Processor final : public MediaProcessor {
 public:
  explicit Lfm2Processor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        scale_(pixel_scale(c.preprocessor, kHalfScale)),
        filter_(pixel_filter(c.preprocessor, Filter::Bilinear)),
        token_(c.token("<image>", "image_token_id")) {
    const Json &file = c.preprocessor.is_object() ? c.preprocessor : kNothing,
               &model = c.config.is_object() ? c.config : kNothing;
    const int64_t merge = file.value("downsample_factor", model.value("downsample_factor", int64_t{2}));
    form_ = {c.whole("encoder_patch_size", "vision_config", "patch_size", 16), merge, 1};
    const bool splits = file.value("do_image_splitting", true);
    least_ = splits ? file.value("min_tiles", int64_t{2}) : 1,
    most_ = splits ? file.value("max_tiles", int64_t{10}) : 1;
    side_ = file.value("tile_size", int64_t{512});
    tolerance_ = file.value("max_pixels_tolerance", 2.0), whole_too_ = file.value("use_thumbnail", true);
    const int64_t factor = form_.patch > 0 && form_.merge > 0 ? form_.factor() : 0;
    const int64_t fewest = file.value("min_image_tokens", int64_t{64}),
                  tokens = file.value("max_image_tokens", int64_t{256});
    require(factor > 0 && factor <= 1 << 12 && side_ > 0 && side_ <= 1 << 14 && side_ % factor == 0 && least_ >= 1 &&
                most_ >= least_ && most_ <= 1024 && fewest >= 1 && tokens >= fewest && tokens <= 1 << 20,
            Fault::Model, "from ", least_, " to ", most_, " tiles of ", side_, " pixels in cells of ", factor, ", ",
            fewest, " to ", tokens, " tokens: check preprocessor_config.json");
    limits_ = {factor, fewest * factor * factor, tokens * factor * factor};
  }

  // Of all tiles together, where there are some.
  ImageSize seen_size(ImageSize size) const override {
    const TileGrid grid = tiles_of(size);
    if (grid.rows * grid.columns > 1) return {grid.columns * side_, grid.rows * side_};
    return smart_size(size, limits_);
  }
  std::vector<int32_t> media_tokens() const override { return {token_}; }
  std::string grid_name(MediaType) const override { return ""; }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    const ImageSize size{image.width, image.height}, whole = smart_size(size, limits_);
    const TileGrid grid = tiles_of(size);
    std::vector<Image> out;
    if (grid.rows * grid.columns > 1) {
      add_tiles(resized_as_torch(image, grid.columns * side_, grid.rows * side_, filter_), side_, side_, out);
      if (!whole_too_) return out;
    }
    out.push_back(resized_as_torch(image, whole.width, whole.height, filter_));
    return out;
  }

  PreparedMedia prepared_image(const Image& image) const override {
    const std::vector<Image> pictures = seen(image);
    const TileGrid grid = tiles_of({image.width, image.height});
    const auto tiles = static_cast<size_t>(grid.rows * grid.columns);
    auto content = std::make_shared<MediaContent>();
    PreparedMedia out{content, "<|image_start|>", token_, {}};
    const std::vector<int64_t> tokens = fill_with_pictures(*content, pictures, form_, scale_, "lfm2");
    for (size_t i = 0; i < pictures.size(); ++i) {
      out.runs.emplace_back(static_cast<size_t>(tokens[i]), token_);
      const auto number = static_cast<int64_t>(i);
      if (tiles > 1 && i < tiles)
        out.text += str("<|img_row_", number / grid.columns + 1, "_col_", number % grid.columns + 1, "|>");
      else if (tiles > 1)
        out.text += "<|img_thumbnail|>";
      out.text += "<image>";
    }
    out.text += "<|image_end|>";
    return out;
  }

 private:
  inline static const Json kNothing = Json::object();

  // One where the picture is not much larger than what one run of tokens may show.
  TileGrid tiles_of(ImageSize size) const {
    const auto whole = [&](int64_t length) {
      const double cells = std::nearbyint(static_cast<double>(length) / static_cast<double>(limits_.factor));
      return std::max(static_cast<double>(form_.patch), cells * static_cast<double>(limits_.factor));
    };
    const bool large = whole(size.height) * whole(size.width) > static_cast<double>(limits_.max_pixels) * tolerance_;
    if (!large || most_ == 1) return {1, 1};
    return tile_grid(size, least_, most_, side_);
  }

  PixelScale scale_;
  Filter filter_;
  int32_t token_;
  PatchForm form_;
  SizeLimits limits_;
  int64_t least_ = 2, most_ = 10, side_ = 512;  // tiles, and a tile's side in pixels
  double tolerance_ = 2;                        // so many times as many pixels as one run may show are no tiles yet
  bool whole_too_ = true;
};

const RegisterMediaFamily lfm2_vl({"lfm2_vl"},
                                  [](const MediaCheckpoint& c) { return std::make_shared<Lfm2Processor>(c); });

}  // namespace
}  // namespace apus
