// SPDX-License-Identifier: Apache-2.0
// Molmo2: all of a picture in one square, and a larger one in squares that overlap, of which each patch counts once. A
// row stands for 2 x 2 patches, of a video's frame for 3 x 3.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "media/pixel_form.h"
#include "media/processor.h"
#include "text/tokenizer.h"

namespace apus {

namespace {

constexpr double kUsualRate = 2;  // of a video that does not say its frames in a second

// The rows of a grid of patches, each of side x side of them, edges filled up on both sides.
class Pooling {
 public:
  Pooling(int64_t high, int64_t wide, int64_t rows, int64_t columns)
      : pool_high(rows), pool_wide(columns), high_((high + rows - 1) / rows), wide_((wide + columns - 1) / columns) {
    top_ = (high_ * rows - high) / 2, left_ = (wide_ * columns - wide) / 2;
  }
  int64_t high() const { return high_; }
  int64_t wide() const { return wide_; }
  // `patch`: the number of the one in a line and column, or -1.
  template <class Patch>
  void add(std::vector<int32_t>& out, const Patch& patch) const {
    for (int64_t row = 0; row < high_; ++row)
      for (int64_t column = 0; column < wide_; ++column)
        for (int64_t y = 0; y < pool_high; ++y)
          for (int64_t x = 0; x < pool_wide; ++x)
            out.push_back(static_cast<int32_t>(patch(row * pool_high + y - top_, column * pool_wide + x - left_)));
  }

 private:
  int64_t pool_high, pool_wide, high_, wide_, top_ = 0, left_ = 0;
};

// How many squares a picture has in lines and columns.
struct Tiling {
  int64_t rows = 1, columns = 1;
};

// In the precision of the original. `window`: of a square, without what it shares with its neighbours.
Tiling tiling_of(int64_t height, int64_t width, int64_t window, int64_t most) {
  std::vector<Tiling> all;
  for (int64_t rows = 1; rows <= most; ++rows)
    for (int64_t columns = 1; rows * columns <= most; ++columns) all.push_back({rows, columns});
  std::sort(all.begin(), all.end(), [](const Tiling& a, const Tiling& b) {
    return std::pair(a.rows * a.columns, a.rows) < std::pair(b.rows * b.columns, b.rows);
  });
  const auto scale = [&](const Tiling& t) {
    const auto of = [&](int64_t n, int64_t side) { return static_cast<float>(n * window) / static_cast<float>(side); };
    return std::min(of(t.rows, height), of(t.columns, width));
  };
  const auto largest =
      std::max_element(all.begin(), all.end(), [&](const Tiling& a, const Tiling& b) { return scale(a) < scale(b); });
  if (scale(*largest) < 1) return *largest;
  return *std::min_element(all.begin(), all.end(), [&](const Tiling& a, const Tiling& b) {
    const auto enough = [&](const Tiling& t) { return scale(t) < 1 ? 10e9f : scale(t); };
    return enough(a) < enough(b);
  });
}

Json said_in(const Json& file, const char* name, const Json& otherwise) {
  return file.is_object() && file.contains(name) && !file[name].is_null() ? file[name] : otherwise;
}

std::array<int64_t, 2> two_numbers(const Json& file, const char* name, const std::array<int64_t, 2>& otherwise) {
  const Json said = said_in(file, name, otherwise);
  require(said.is_array() && said.size() == 2 && said[0].is_number_integer() && said[1].is_number_integer(),
          Fault::Model, "preprocessor_config.json: '", name, "' must be two whole numbers");
  return {said[0], said[1]};
}

class Molmo2Processor final : public MediaProcessor {
 public:
  explicit Molmo2Processor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels), tokenizer_(c.tokenizer), scale_(pixel_scale(c.preprocessor, kHalfScale)) {
    form_.patch = said_in(c.preprocessor, "patch_size", 14);
    const Json size = said_in(c.preprocessor, "size", {{"height", 378}, {"width", 378}});
    side_ = said_in(size, "height", 378);
    most_ = said_in(c.preprocessor, "max_crops", 8);
    margins_ = two_numbers(c.preprocessor, "overlap_margins", {4, 4});
    pool_ = two_numbers(c.preprocessor, "pooling_size", {2, 2});
    const Json video =
        c.video_preprocessor.is_object() ? c.video_preprocessor : said_in(c.processor, "video_processor", {});
    video_pool_ = two_numbers(video, "pooling_size", {3, 3});
    require(form_.patch > 0 && side_ >= form_.patch && side_ <= 8192 && side_ % form_.patch == 0 &&
                said_in(size, "width", side_) == side_ && most_ >= 1 && most_ <= 64 && margins_[0] >= 0 &&
                margins_[1] >= 0 && margins_[0] + margins_[1] < side_ / form_.patch &&
                std::min({pool_[0], pool_[1], video_pool_[0], video_pool_[1]}) > 0 &&
                std::max({pool_[0], pool_[1], video_pool_[0], video_pool_[1]}) <= 64,
            Fault::Model, "preprocessor_config.json: squares of ", side_, " pixels, patch_size ", form_.patch,
            ", max_crops ", most_, ", overlap_margins and pooling_size do not fit together");
    columns_ = said_in(c.processor, "image_use_col_tokens", true);
    whole_columns_ = said_in(c.processor, "use_single_crop_col_tokens", columns_);
    video_columns_ = said_in(c.processor, "video_use_col_tokens", false);
    own_start_ = said_in(c.processor, "use_single_crop_start_token", true);
    frame_marks_ = said_in(c.processor, "use_frame_special_tokens", true);
    most_frames_ = c.settings.get("FPS_MAX_FRAMES", said_in(video, "num_frames", 64).get<int64_t>());
    rate_ = c.settings.number("FPS").value_or(said_in(video, "max_fps", kUsualRate).get<double>());
    require(most_frames_ > 0 && rate_ > 0, Fault::Usage, "FPS and FPS_MAX_FRAMES must be above 0");
    image_ = c.token("<|image|>", ""), video_ = c.token("<|video|>", "");
    patch_ = c.token("<im_patch>", "image_patch_id"), column_ = c.token("<im_col>", "image_col_id");
    start_ = c.token("<im_start>", "image_start_token_id"), end_ = c.token("<im_end>", "image_end_token_id");
    whole_start_ = c.token("<low_res_im_start>", "low_res_image_start_token_id");
    frame_start_ = c.token("<frame_start>", "frame_start_token_id");
    frame_end_ = c.token("<frame_end>", "frame_end_token_id");
  }
  ImageSize seen_size(ImageSize) const override { return {side_, side_}; }
  std::vector<int32_t> media_tokens() const override {
    return {patch_, column_, start_, end_, whole_start_, frame_start_, frame_end_};
  }
  std::string grid_name(MediaType) const override { return ""; }
  std::vector<int64_t> chosen_frames(int64_t total, double rate) const override {
    require(total > 0, Fault::Data, "a video without frames");
    int64_t wanted = most_frames_;
    if (rate > rate_) wanted = std::min(wanted, static_cast<int64_t>(static_cast<double>(total) / rate * rate_));
    wanted = std::clamp<int64_t>(wanted, 1, total);
    const double step = static_cast<double>(total) / static_cast<double>(wanted);
    std::vector<int64_t> at;
    const auto count = static_cast<int64_t>(std::ceil(static_cast<double>(total) / step));
    for (int64_t i = 0; i < count; ++i)
      at.push_back(std::min(total - 1, static_cast<int64_t>(static_cast<float>(static_cast<double>(i) * step))));
    return at;
  }
  Image kept_frame(Image frame, int64_t /*count*/) const override { return resized_between(frame, side_, side_); }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    const Tiling tiling = tiling_of(image);
    std::vector<Image> out = {resized_between(image, side_, side_)};
    const Image large = resized_between(image, tiling.columns * window() + shared(), tiling.rows * window() + shared());
    for (int64_t row = 0; row < tiling.rows; ++row)
      for (int64_t column = 0; column < tiling.columns; ++column)
        out.push_back(cropped(large, column * window(), row * window(), side_, side_));
    return out;
  }
  std::vector<Image> seen_frames(const VideoFrames& video) const override {
    std::vector<Image> out;
    for (const Image& frame : video.frames) out.push_back(resized_between(frame, side_, side_));
    return out;
  }
  PreparedMedia prepared_image(const Image& image) const override {
    auto content = std::make_shared<MediaContent>();
    PreparedMedia out{content, "<|image|>", image_, {{}}};
    content->pool = pool_[0] * pool_[1], content->came_as = {image.height, image.width}, out.with_others = true;
    const Pooling whole(cells(), cells(), pool_[0], pool_[1]);
    add_square(content->pooled, whole, 0);
    add_lines(out.runs[0], own_start_ ? whole_start_ : start_, whole, whole_columns_, end_);
    const Tiling tiling = tiling_of(image);
    const int64_t step = window() / form_.patch, more = shared() / form_.patch;
    const int64_t high = tiling.rows * step + more, wide = tiling.columns * step + more;
    const Pooling large(high, wide, pool_[0], pool_[1]);
    large.add(content->pooled, [&](int64_t line, int64_t column) -> int64_t {
      if (line < 0 || column < 0 || line >= high || column >= wide) return -1;
      // The square in which a patch lies, but for what it shares with the one before it.
      const auto square = [&](int64_t at, int64_t squares) {
        return std::clamp<int64_t>((at - margins_[0]) / step, 0, squares - 1);
      };
      const int64_t down = square(line, tiling.rows), across = square(column, tiling.columns);
      const int64_t number = 1 + down * tiling.columns + across;
      return (number * cells() + line - down * step) * cells() + column - across * step;
    });
    add_lines(out.runs[0], start_, large, columns_, end_);
    fill(*content, seen(image));
    return out;
  }
  // The tokens of when a frame was stand among its own.
  PreparedMedia prepared_video(const VideoFrames& video) const override {
    auto content = std::make_shared<MediaContent>();
    content->type = MediaType::Video, content->pool = video_pool_[0] * video_pool_[1];
    PreparedMedia out{content, "<|video|>", video_, {{}}};
    out.with_others = true;
    const Pooling pooling(cells(), cells(), video_pool_[0], video_pool_[1]);
    for (size_t i = 0; i < video.frames.size(); ++i) {
      char time[48];
      const int64_t at = i < video.at.size() ? video.at[i] : static_cast<int64_t>(i);
      const double seconds = static_cast<double>(at) / (video.rate > 0 ? video.rate : kUsualRate);
      std::snprintf(time, sizeof time, "%s%.1f ", i > 0 ? " " : "", seconds);
      if (tokenizer_)
        for (const int32_t id : tokenizer_->encode(time, false)) out.runs[0].push_back(id);
      add_square(content->pooled, pooling, static_cast<int64_t>(i));
      add_lines(out.runs[0], frame_marks_ ? frame_start_ : start_, pooling, video_columns_,
                frame_marks_ ? frame_end_ : end_);
    }
    fill(*content, seen_frames(video));
    return out;
  }

 private:
  int64_t cells() const { return side_ / form_.patch; }
  // Pixels that a square has in common with its neighbours, and those besides.
  int64_t shared() const { return (margins_[0] + margins_[1]) * form_.patch; }
  int64_t window() const { return side_ - shared(); }
  Tiling tiling_of(const Image& image) const {
    return apus::tiling_of(image.height - shared(), image.width - shared(), window(), most_);
  }
  // All of the number-th square.
  void add_square(std::vector<int32_t>& pooled, const Pooling& pooling, int64_t number) const {
    pooling.add(pooled, [&](int64_t line, int64_t column) -> int64_t {
      if (line < 0 || column < 0 || line >= cells() || column >= cells()) return -1;
      return (number * cells() + line) * cells() + column;
    });
  }
  void add_lines(std::vector<int32_t>& run, int32_t start, const Pooling& pooling, bool columns, int32_t end) const {
    run.push_back(start);
    for (int64_t line = 0; line < pooling.high(); ++line) {
      run.insert(run.end(), static_cast<size_t>(pooling.wide()), patch_);
      if (columns) run.push_back(column_);
    }
    run.push_back(end);
  }
  void fill(MediaContent& content, const std::vector<Image>& squares) const {
    PatchGrid grid;
    content.values = patch_rows(squares, form_, scale_, grid);
    content.grids.assign(squares.size(), {1, cells(), cells()});
    content.grid = content.grids[0];
    content.shape = {std::ssize(content.values) / form_.numbers(), form_.numbers()};
    content.digest =
        content_digest(content, str("molmo2 ", form_.patch, ' ', content.pool, ' ', form_text(scale_)), squares);
  }

  const Tokenizer* tokenizer_;
  PixelScale scale_;
  PatchForm form_{.patch = 14, .merge = 1, .time = 1};
  int64_t side_ = 378, most_ = 8, most_frames_ = 64;
  std::array<int64_t, 2> margins_{}, pool_{}, video_pool_{};
  double rate_ = kUsualRate;  // frames in a second that are taken at most
  bool columns_ = true, whole_columns_ = true, video_columns_ = false, own_start_ = true, frame_marks_ = true;
  int32_t image_ = 0, video_ = 0, patch_ = 0, column_ = 0, start_ = 0, end_ = 0, whole_start_ = 0, frame_start_ = 0,
          frame_end_ = 0;
};

const RegisterMediaFamily molmo2({"molmo2"},
                                 [](const MediaCheckpoint& c) { return std::make_shared<Molmo2Processor>(c); });

}  // namespace
}  // namespace apus
