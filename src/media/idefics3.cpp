// SPDX-License-Identifier: Apache-2.0
// Idefics 3 and SmolVLM: a picture as tiles, each behind a word that says its row and column, and all of it once more.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "media/smol_video.h"
#include "media/square.h"
#include "text/tokenizer.h"

namespace apus {

namespace {

int64_t longest_edge(const Json& preprocessor, const char* name, int64_t otherwise) {
  if (!preprocessor.is_object() || !preprocessor.contains(name)) return otherwise;
  const Json& size = preprocessor[name];
  return size.is_object() && size.contains("longest_edge") ? size["longest_edge"].get<int64_t>() : otherwise;
}

// The longer side becomes `longer`, the other one as many as the shape asks for.
ImageSize with_longer(ImageSize size, int64_t longer) {
  const double shape = static_cast<double>(size.width) / static_cast<double>(size.height);
  if (size.width >= size.height) return {longer, static_cast<int64_t>(static_cast<double>(longer) / shape)};
  return {static_cast<int64_t>(static_cast<double>(longer) * shape), longer};
}

class Idefics3Processor : public MediaProcessor {
 public:
  explicit Idefics3Processor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        sees_videos_(c.config.value("model_type", "") == "smolvlm"),
        scale_(pixel_scale(c.preprocessor, kHalfScale)),
        filter_(pixel_filter(c.preprocessor, Filter::Lanczos)),
        token_(c.token("<image>", "image_token_id")),
        around_(c.token("<fake_token_around_image>", "")) {
    const Json& file = c.preprocessor;
    splits_ = !file.is_object() || !file.contains("do_image_splitting") || file["do_image_splitting"] != false;
    side_ = longest_edge(file, "max_image_size", of_tower(c, "image_size", 364));
    longest_ = longest_edge(file, "size", 4 * side_);
    const Json sampling = file.is_object() ? file.value("video_sampling", Json::object()) : Json::object();
    longest_frame_ = longest_edge(sampling, "video_size", longest_);
    rate_ = c.settings.number("FPS").value_or(sampling.value("fps", 1.0));
    most_frames_ = c.settings.get("FPS_MAX_FRAMES", sampling.value("max_frames", int64_t{64}));
    require(rate_ > 0 && most_frames_ >= 1 && longest_frame_ >= 1 && longest_frame_ <= 1 << 16, Fault::Model,
            "preprocessor_config.json: video_sampling: ", rate_, " frames in a second, at most ", most_frames_, " of ",
            longest_frame_, " pixels");
    const int64_t patch = of_tower(c, "patch_size", 14), own = of_tower(c, "image_size", 364);
    const auto merge = c.config.contains("scale_factor") ? c.config["scale_factor"].get<int64_t>() : 2;
    require(side_ == own && patch > 0 && merge > 0 && side_ / patch >= merge && longest_ >= 1 && longest_ <= 1 << 16,
            Fault::Model, "tiles of ", side_, " pixels in patches of ", patch, " x ", merge, " for a tower of ", own,
            " pixels: check preprocessor_config.json");
    const int64_t cells = side_ / patch / merge;
    tokens_ = static_cast<size_t>(cells * cells);
    const auto words = [&](const std::string& text) {
      return c.tokenizer ? c.tokenizer->encode(text) : std::vector<int32_t>();
    };
    one_feed_ = words("\n"), two_feeds_ = words("\n\n"), all_ = words("<global-img>");
    most_ = (longest_ + side_ - 1) / side_;
    for (int64_t i = 0; i < most_ * most_; ++i)
      places_.push_back(words(str("<row_", i / most_ + 1, "_col_", i % most_ + 1, ">")));
  }

  std::vector<int64_t> chosen_frames(int64_t total, double rate) const override {
    return smol_frames(total, rate, rate_, most_frames_);
  }
  Image kept_frame(Image frame, int64_t) const override { return as_frame(frame); }
  // Before it is cut into tiles.
  ImageSize seen_size(ImageSize size) const override {
    if (!splits_) return {side_, side_};
    const ImageSize large = within_bounds(size, longest_);
    const auto whole = [&](int64_t side) { return (side + side_ - 1) / side_ * side_; };
    const ImageSize longer = with_longer(large, whole(std::max(large.width, large.height)));
    return {whole(longer.width), whole(longer.height)};
  }
  std::vector<int32_t> media_tokens() const override { return {token_, around_}; }
  std::string grid_name(MediaType) const override { return ""; }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    const ImageSize large = within_bounds({image.width, image.height}, longest_);
    const Image first = resized(image, large.width, large.height, filter_);
    const ImageSize size = seen_size({image.width, image.height});
    const Image whole = resized(first, size.width, size.height, filter_);
    std::vector<Image> out;
    add_tiles(whole, side_, side_, out);
    if (out.size() > 1) out.push_back(resized(whole, side_, side_, filter_));
    return out;
  }

  std::vector<Image> seen_frames(const VideoFrames& video) const override {
    if (!sees_videos_) return MediaProcessor::seen_frames(video);
    std::vector<Image> out;
    for (const Image& frame : video.frames) out.push_back(as_frame(frame));
    return out;
  }

  // Each frame is a picture of one tile behind its time.
  PreparedMedia prepared_video(const VideoFrames& video) const override {
    if (!sees_videos_) return MediaProcessor::prepared_video(video);
    const std::vector<Image> frames = seen_frames(video);
    auto content = std::make_shared<MediaContent>();
    content->type = MediaType::Video;
    content->values = pixel_planes(frames, scale_);
    content->shape = {std::ssize(frames), 3, side_, side_};
    content->digest = content_digest(*content, str("idefics3 ", form_text(scale_)), frames);
    PreparedMedia out{content, "", token_, {}};
    out.text = smol_intro(video);
    for (size_t i = 0; i < frames.size(); ++i) {
      out.text += "\nFrame from " + smol_time(video, i) + ":<image>";
      out.runs.push_back(run_of(1, 1));
    }
    out.text += "\n\n";
    return out;
  }

  PreparedMedia prepared_image(const Image& image) const override {
    const std::vector<Image> tiles = seen(image);
    const ImageSize size = seen_size({image.width, image.height});
    auto content = std::make_shared<MediaContent>();
    content->values = pixel_planes(tiles, scale_);
    content->shape = {static_cast<int64_t>(tiles.size()), 3, side_, side_};
    content->digest = content_digest(*content, str("idefics3 ", form_text(scale_)), tiles);
    return {content, "<image>", token_, {run_of(size.height / side_, size.width / side_)}};
  }

 private:
  static ImageSize within_bounds(ImageSize size, int64_t longest) {
    constexpr int64_t kMostPixels = 4096;  // a side
    ImageSize out = with_longer(size, longest);
    // An odd side would be one pixel off in the middle.
    if (size.width >= size.height)
      out.height += out.height % 2;
    else
      out.width += out.width % 2;
    if (std::max(out.width, out.height) > kMostPixels) out = with_longer(out, kMostPixels);
    return {std::max<int64_t>(out.width, 1), std::max<int64_t>(out.height, 1)};
  }

  std::vector<int32_t> run_of(int64_t rows, int64_t columns) const {
    std::vector<int32_t> run;
    const auto tile = [&](const std::vector<int32_t>& name) {
      run.push_back(around_);
      run.insert(run.end(), name.begin(), name.end());
      run.insert(run.end(), tokens_, token_);
    };
    for (int64_t row = 0; row < rows && rows * columns > 1; ++row) {
      for (int64_t column = 0; column < columns; ++column) tile(places_[static_cast<size_t>(row * most_ + column)]);
      // A blank line behind the last row.
      const std::vector<int32_t>& feeds = row + 1 < rows ? one_feed_ : two_feeds_;
      run.insert(run.end(), feeds.begin(), feeds.end());
    }
    tile(all_);
    run.push_back(around_);
    return run;
  }

  Image as_frame(const Image& frame) const {
    if (frame.width == side_ && frame.height == side_) return frame;
    const ImageSize size = within_bounds({frame.width, frame.height}, longest_frame_);
    return resized(resized(frame, size.width, size.height, filter_), side_, side_, filter_);
  }

  bool sees_videos_;
  PixelScale scale_;
  Filter filter_;
  int32_t token_, around_;
  bool splits_ = true;
  int64_t side_ = 364, longest_ = 1456, most_ = 4;  // most tiles a side
  int64_t longest_frame_ = 364, most_frames_ = 64;
  double rate_ = 1;  // frames in a second that are taken
  size_t tokens_ = 0;
  std::vector<int32_t> one_feed_, two_feeds_, all_;
  std::vector<std::vector<int32_t>> places_;  // the word of each tile of the largest grid
};

const RegisterMediaFamily idefics3({"idefics3", "smolvlm"},
                                   [](const MediaCheckpoint& c) { return std::make_shared<Idefics3Processor>(c); });

}  // namespace
}  // namespace apus
