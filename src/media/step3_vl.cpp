// SPDX-License-Identifier: Apache-2.0
// Step3-VL: a picture that is large or long in windows, line by line, and behind them all of it in one square. Windows
// and the whole are stretched to squares of two sizes.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "media/square.h"

namespace apus {

namespace {

// In pixels of the picture.
constexpr int64_t kLargest = 3024, kOneView = 728, kWindowSide = 504;

double ratio_of(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

// The side of a picture's windows; 0: it is seen as a whole only.
int64_t window_of(ImageSize size) {
  const int64_t longer = std::max(size.width, size.height), shorter = std::min(size.width, size.height);
  const double ratio = ratio_of(longer, shorter);
  if (longer <= kOneView) return ratio > 1.5 ? shorter : 0;
  return ratio > 4 ? std::min(shorter, kWindowSide) : kWindowSide;
}

// What a side is brought to, so that windows fill it: one more where more than a fifth of a window is left.
int64_t in_windows(int64_t side, int64_t window) {
  if (side < window) return side;
  const int64_t whole = side / window;
  return window * (ratio_of(side, window) - static_cast<double>(whole) > 0.2 ? whole + 1 : whole);
}

class Step3Processor final : public MediaProcessor {
 public:
  explicit Step3Processor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        side_(of_tower(c, "image_size", 728)),
        form_{.patch = of_tower(c, "patch_size", 14), .merge = 1, .time = 1},
        scale_(pixel_scale(c.preprocessor, kClipScale)),
        token_(c.token("<im_patch>", "image_token_id")) {
    window_side_ = side_ * kWindowSide / kOneView;
    require(form_.patch > 0 && side_ <= 8192 && window_side_ >= form_.patch && side_ % form_.patch == 0 &&
                window_side_ % form_.patch == 0,
            Fault::Model, "config.json: squares of ", side_, " and ", window_side_,
            " pixels are not in whole patches of ", form_.patch);
  }
  ImageSize seen_size(ImageSize) const override { return {side_, side_}; }
  std::vector<int32_t> media_tokens() const override { return {token_}; }
  std::string grid_name(MediaType) const override { return ""; }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    const Views views = views_of(image);
    std::vector<Image> out;
    for (const Image& view : views.pictures) {
      const int64_t side = out.size() + 1 < views.pictures.size() ? window_side_ : side_;
      out.push_back(resized_in_floats(view, side, side, Filter::Bilinear));
    }
    return out;
  }
  PreparedMedia prepared_image(const Image& image) const override {
    const Views views = views_of(image);
    auto content = std::make_shared<MediaContent>();
    PreparedMedia out{content, "", token_, {}};
    for (size_t i = 0; i < views.pictures.size(); ++i) {
      const bool whole = i + 1 == views.pictures.size();
      const int64_t rows = add_square(views.pictures[i], whole ? side_ : window_side_, *content);
      out.text += whole ? "<im_start><im_patch><im_end>" : "<patch_start><im_patch><patch_end>";
      if (!whole && i + 2 < views.pictures.size() && (i + 1) % views.columns == 0) out.text += "<patch_newline>";
      out.runs.emplace_back(static_cast<size_t>(rows), token_);
    }
    content->grid = content->grids[0];
    content->shape = {std::ssize(content->values) / form_.numbers(), form_.numbers()};
    content->digest = content_digest(*content, str("step3_vl ", form_.patch, ' ', form_text(scale_)), views.pictures);
    return out;
  }

 private:
  struct Views {
    std::vector<Image> pictures;  // windows, and the whole
    size_t columns = 1;
  };
  static Views views_of(Image image) {
    const int64_t longer = std::max(image.width, image.height), shorter = std::min(image.width, image.height);
    if (shorter < 32 && ratio_of(longer, shorter) > 4) image = laid_on(image, {longer, longer}, 0, 0, {});
    if (longer > kLargest) {
      const double scale = ratio_of(kLargest, longer);
      const auto side = [&](int64_t n) {
        return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(n) * scale));
      };
      image = resized(image, side(image.width), side(image.height), Filter::Bilinear);
    }
    Views out;
    if (const int64_t window = window_of({image.width, image.height}); window > 0) {
      const int64_t width = in_windows(image.width, window), height = in_windows(image.height, window);
      const Image large = resized(image, width, height, Filter::Bilinear);
      const int64_t wide = std::min(window, width), high = std::min(window, height);
      add_tiles(large, wide, high, out.pictures);
      out.columns = static_cast<size_t>(width / wide);
    }
    out.pictures.push_back(std::move(image));
    return out;
  }
  // As patches, line after line. How many rows become of it.
  int64_t add_square(const Image& picture, int64_t side, MediaContent& content) const {
    const std::vector<float> rgb = floats_resized(picture, side, side, Filter::Bilinear);
    const int64_t cells = side / form_.patch, p = form_.patch;
    for (int64_t row = 0; row < cells; ++row)
      for (int64_t column = 0; column < cells; ++column)
        for (int64_t c = 0; c < 3; ++c)
          for (int64_t y = 0; y < p; ++y)
            for (int64_t x = 0; x < p; ++x) {
              const double level = rgb[static_cast<size_t>(((row * p + y) * side + column * p + x) * 3 + c)] / 255.0;
              const auto k = static_cast<size_t>(c);
              content.values.push_back(static_cast<float>((level - scale_.mean[k]) / scale_.deviation[k]));
            }
    content.grids.push_back({1, cells, cells});
    return halved_twice(cells) * halved_twice(cells);
  }

  int64_t side_, window_side_ = 0;
  PatchForm form_;
  PixelScale scale_;
  int32_t token_;
};

const RegisterMediaFamily step3_vl({"step_robotics"},
                                   [](const MediaCheckpoint& c) { return std::make_shared<Step3Processor>(c); });

}  // namespace
}  // namespace apus
