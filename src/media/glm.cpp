// SPDX-License-Identifier: Apache-2.0
// GLM-4.1V and its like: pictures near their own size, cut into patches; of a video each pair of frames is a picture of
// its own before its time.
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "media/pixel_form.h"
#include "media/processor.h"

namespace apus {

namespace {

constexpr int64_t kMostFramesOfGlm = 600;  // two in a second of five minutes

class GlmProcessor : public MediaProcessor {
 public:
  explicit GlmProcessor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        tenths_(writes_tenths(c)),
        scale_(pixel_scale(c.preprocessor, kClipScale)),
        filter_(pixel_filter(c.preprocessor, Filter::Bicubic)),
        image_(c.token("<|image|>", "image_token_id")),
        video_(c.token("<|video|>", "video_token_id")),
        rate_(c.settings.number("FPS").value_or(2)) {
    form_.patch = c.whole("patch_size", "vision_config", "patch_size", 14);
    form_.merge = c.whole("merge_size", "vision_config", "spatial_merge_size", 2);
    form_.time = c.whole("temporal_patch_size", "vision_config", "temporal_patch_size", 2);
    const int64_t area = form_.factor() * form_.factor();
    limits_ = size_limits(c.preprocessor, c.settings, "IMAGE", {form_.factor(), 16 * area, 15000 * area});
    video_limits_ = size_limits(Json(), c.settings, "VIDEO", {form_.factor(), 16 * area, 60000 * area});
    require(rate_ > 0, Fault::Usage, "FPS must be above 0, it is ", rate_);
  }

  ImageSize seen_size(ImageSize size) const override { return glm_size(form_.time, size, limits_, form_.time); }
  std::vector<int64_t> chosen_frames(int64_t total, double rate) const override {
    return glm_frames(total, rate, rate_, kMostFramesOfGlm);
  }
  Image kept_frame(Image frame, int64_t count) const override {
    const ImageSize size = video_size(frame, count);
    return resized(frame, size.width, size.height, filter_);
  }
  std::vector<int32_t> media_tokens() const override { return {image_, video_}; }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    const ImageSize size = seen_size({image.width, image.height});
    return {resized(image, size.width, size.height, filter_)};
  }
  std::vector<Image> seen_frames(const VideoFrames& video) const override {
    const ImageSize size = video_size(video.frames[0], std::ssize(video.frames));
    std::vector<Image> frames;
    for (const Image& frame : video.frames) frames.push_back(resized(frame, size.width, size.height, filter_));
    return frames;
  }
  PreparedMedia prepared_image(const Image& image) const override {
    auto content = std::make_shared<MediaContent>();
    const int64_t tokens = fill(*content, seen(image));
    PreparedMedia out{content, kPicture, image_, {}};
    out.runs.emplace_back(static_cast<size_t>(tokens), image_);
    return out;
  }
  PreparedMedia prepared_video(const VideoFrames& video) const override {
    auto content = std::make_shared<MediaContent>();
    content->type = MediaType::Video;
    const int64_t tokens = fill(*content, seen_frames(video));
    PreparedMedia out{content, "<|begin_of_video|>", image_, {}};
    for (int64_t step = 0; step < content->grid[0]; ++step) {
      char time[48];
      const double seconds = begin_of(video, step * form_.time);
      std::snprintf(time, sizeof time, tenths_ ? "%.1f seconds" : "%.0f", tenths_ ? seconds : std::floor(seconds));
      out.text += std::string(kPicture) + time;
      out.runs.emplace_back(static_cast<size_t>(tokens / content->grid[0]), image_);
    }
    out.text += "<|end_of_video|>";
    return out;
  }

 private:
  static constexpr const char* kPicture = "<|begin_of_image|><|image|><|end_of_image|>";

  // GLM-4.6V writes times as 1.5 seconds, those before it as whole ones without a word.
  static bool writes_tenths(const MediaCheckpoint& c) {
    const Json& file = c.preprocessor;
    return c.config.value("model_type", "") == "glm46v" ||
           (file.is_object() && file.value("processor_class", "") == "Glm46VProcessor");
  }
  // The limits count the pixels of all frames, a pair at least.
  ImageSize video_size(const Image& frame, int64_t count) const {
    return glm_size(std::max(count, form_.time), {frame.width, frame.height}, video_limits_, form_.time);
  }
  static double begin_of(const VideoFrames& video, int64_t frame) {
    const auto last = std::ssize(video.at) - 1;
    const int64_t at = last < 0 ? frame : video.at[static_cast<size_t>(std::min<int64_t>(frame, last))];
    return static_cast<double>(at) / (video.rate > 0 ? video.rate : 24);
  }
  int64_t fill(MediaContent& content, const std::vector<Image>& pictures) const {
    return fill_with_patches(content, pictures, form_, scale_, "glm");
  }

  bool tenths_;
  PixelScale scale_;
  Filter filter_;
  int32_t image_, video_;
  double rate_;  // frames in a second that are taken
  PatchForm form_;
  SizeLimits limits_, video_limits_;
};

const RegisterMediaFamily glm({"glm4v", "glm4v_moe", "glm46v", "glm_ocr"},
                              [](const MediaCheckpoint& c) { return std::make_shared<GlmProcessor>(c); });

}  // namespace
}  // namespace apus
