// SPDX-License-Identifier: Apache-2.0
// MiniCPM-V: all of a picture near one size, and, where it is larger, a grid of slices of it in a larger size. Of 4.6
// each cell of 4 x 4 patches is a token; before it, each of these pictures has as many tokens as the model has queries.
#include "media/minicpm.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "media/pixel_form.h"
#include "media/processor.h"

namespace apus {

double minicpm_version(const Json& config) {
  const auto said = config.find("version");
  if (said == config.end() || said->is_null()) return 2.5;
  return said->is_number() ? said->get<double>() : std::atof(said->is_string() ? said->get<std::string>().c_str() : "");
}

namespace {

// The multiple of `step` that is nearest, one at least.
int64_t whole_steps(double length, int64_t step) {
  const double steps = std::nearbyint(length / static_cast<double>(step));
  return std::max<int64_t>(1, static_cast<int64_t>(steps)) * step;
}

class MiniCpmProcessor : public MediaProcessor {
 public:
  explicit MiniCpmProcessor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        scale_(pixel_scale(c.preprocessor, kHalfScale)),
        filter_(pixel_filter(c.preprocessor, Filter::Bicubic)),
        queries_(queries_of(c)),
        word_(queries_ > 0 ? "<unk>" : "<|image_pad|>"),
        token_(c.token(word_, "image_token_id")) {
    form_ = {c.whole("patch_size", "vision_config", "patch_size", 14), queries_ > 0 ? 1 : 4, 1};
    const Json& file = c.preprocessor.is_object() ? c.preprocessor : kNothing;
    // Of 2.5 all slices stand between one pair of marks, each as a picture, and pictures are not counted.
    nested_ = queries_ > 0 && minicpm_version(c.config) < 2.6;
    side_ = file.value("scale_resolution", int64_t{448});
    const int64_t most = c.settings.get("MAX_SLICE_NUMS", file.value("max_slice_nums", int64_t{9}));
    most_ = file.value("slice_mode", true) ? most : 1;
    numbered_ = !nested_ && file.value("use_image_id", true);
    require(form_.patch > 0 && side_ >= form_.factor() && side_ <= 1 << 14 && most_ >= 1 && most_ <= 1024 &&
                file.value("downsample_mode", "16x") == "16x",
            Fault::Model, "up to ", most_, " slices of ", side_, " pixels in patches of ", form_.patch,
            ": check preprocessor_config.json, whose downsample_mode must be 16x");
  }

  // Of all slices together, where there are some.
  ImageSize seen_size(ImageSize size) const override {
    const TileGrid grid = slices_of(size);
    return grid.rows * grid.columns > 1 ? sliced_size(size, grid) : near_side(size.height, size.width, true);
  }
  std::vector<int32_t> media_tokens() const override { return {token_}; }
  std::string counted(const std::string& text, size_t number) const override {
    return numbered_ ? str("<image_id>", number, "</image_id>", text) : text;
  }
  std::string grid_name(MediaType) const override { return ""; }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    const ImageSize size{image.width, image.height};
    const TileGrid grid = slices_of(size);
    const bool sliced = grid.rows * grid.columns > 1;
    const ImageSize whole = near_side(size.height, size.width, !sliced);
    std::vector<Image> out{resized(image, whole.width, whole.height, filter_)};
    if (!sliced) return out;
    const ImageSize all = sliced_size(size, grid);
    const Image large = resized(image, all.width, all.height, filter_);
    add_tiles(large, all.width / grid.columns, all.height / grid.rows, out);
    return out;
  }

  PreparedMedia prepared_image(const Image& image) const override {
    const std::vector<Image> pictures = seen(image);
    const TileGrid grid = slices_of({image.width, image.height});
    auto content = std::make_shared<MediaContent>();
    PreparedMedia out{content, "<image>" + word_ + "</image>", token_, {}};
    const std::vector<int64_t> tokens = fill_with_pictures(*content, pictures, form_, scale_, "minicpm");
    const std::string slice = nested_ ? "<image>" + word_ + "</image>" : "<slice>" + word_ + "</slice>";
    for (size_t i = 0; i < pictures.size(); ++i) {
      out.runs.emplace_back(static_cast<size_t>(queries_ > 0 ? queries_ : tokens[i]), token_);
      if (i == 0) continue;
      const bool begins_line = i > 1 && (static_cast<int64_t>(i) - 1) % grid.columns == 0;
      if (nested_ && i == 1) out.text += "<slice>";
      out.text += str(begins_line ? "\n" : "", slice);
    }
    if (nested_ && pictures.size() > 1) out.text += "</slice>";
    if (queries_ > 0) out.text += "\n";
    return out;
  }

 private:
  inline static const Json kNothing = Json::object();

  // 0: of 4.6, which has none.
  static int64_t queries_of(const MediaCheckpoint& c) {
    const std::string type = c.config.value("model_type", "");
    return type == "minicpmv" || type == "minicpmo" ? c.config.value("query_num", int64_t{64}) : 0;
  }

  // As many pixels as a square of this side where there are more of them, or always; whole cells.
  ImageSize near_side(double height, double width, bool always) const {
    if (always || height * width > static_cast<double>(side_ * side_)) {
      const double shape = width / height;
      height = std::floor(static_cast<double>(side_) / std::sqrt(shape));
      width = std::floor(height * shape);
    }
    return {whole_steps(width, form_.factor()), whole_steps(height, form_.factor())};
  }
  // The grid nearest the picture's shape, of about as many slices as squares of this side would cover it.
  TileGrid slices_of(ImageSize size) const {
    const auto width = static_cast<double>(size.width), height = static_cast<double>(size.height);
    const double squares = width * height / static_cast<double>(side_ * side_);
    const int64_t wanted = std::min(static_cast<int64_t>(std::ceil(squares)), most_);
    TileGrid best{1, 1};
    if (wanted <= 1) return best;
    double least = INFINITY;
    for (int64_t count = std::max<int64_t>(2, wanted - 1); count <= std::min(wanted + 1, most_); ++count)
      for (int64_t rows = 1; rows <= count; ++rows) {
        if (count % rows != 0) continue;
        const int64_t columns = count / rows;
        const double error =
            std::abs(std::log(width / height) - std::log(static_cast<double>(columns) / static_cast<double>(rows)));
        if (error > least || (error == least && rows <= best.rows)) continue;
        least = error, best.rows = rows, best.columns = columns;
      }
    return best;
  }
  ImageSize sliced_size(ImageSize size, const TileGrid& grid) const {
    const auto part = [](int64_t length, int64_t parts) {
      return static_cast<double>(whole_steps(static_cast<double>(length), parts)) / static_cast<double>(parts);
    };
    const ImageSize slice = near_side(part(size.height, grid.rows), part(size.width, grid.columns), true);
    return {slice.width * grid.columns, slice.height * grid.rows};
  }

  PixelScale scale_;
  Filter filter_;
  int64_t queries_;
  std::string word_;
  int32_t token_;
  PatchForm form_;
  bool nested_ = false;
  int64_t side_ = 448, most_ = 9;  // of a slice; slices
  bool numbered_ = true;           // each picture stands behind its number
};

const RegisterMediaFamily minicpm({"minicpmv", "minicpmo", "minicpmv4_6"},
                                  [](const MediaCheckpoint& c) { return std::make_shared<MiniCpmProcessor>(c); });

}  // namespace
}  // namespace apus
