// SPDX-License-Identifier: Apache-2.0
// Ovis2.5: pictures near their own size in patches of one frame. Its visual tokens are numbers below zero, which no
// tokenizer knows; <|image_pad|> of its tokenizer holds their place until then.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "media/pixel_form.h"
#include "media/processor.h"

namespace apus {

namespace {

constexpr int32_t kAtom = -300, kImageBegin = -301, kImageEnd = -302, kVideoBegin = -303, kVideoEnd = -304;

class OvisProcessor : public MediaProcessor {
 public:
  explicit OvisProcessor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        scale_(pixel_scale(c.preprocessor, kHalfScale)),
        filter_(pixel_filter(c.preprocessor, Filter::Bicubic)),
        place_(c.token("<|image_pad|>", "")) {
    form_.patch = c.whole("patch_size", "vit_config", "patch_size", 16);
    form_.merge = c.whole("hidden_stride", "vit_config", "hidden_stride", 2);
    form_.time = c.whole("temporal_patch_size", "vit_config", "temporal_patch_size", 1);
    // `size` of its preprocessor_config.json is that of the tower's first training, not of this model's pictures.
    limits_ = size_limits(Json(), c.settings, "IMAGE", {form_.factor(), 448 * 448, 1344 * 1792});
    video_limits_ = size_limits(Json(), c.settings, "VIDEO", {form_.factor(), 448 * 448, 896 * 896});
  }

  ImageSize seen_size(ImageSize size) const override { return ovis_size(size, limits_); }
  std::vector<int32_t> media_tokens() const override { return {kAtom, kImageBegin, kImageEnd, kVideoBegin, kVideoEnd}; }
  std::string values_name(MediaType) const override { return "pixel_values"; }
  std::string grid_name(MediaType) const override { return "grid_thws"; }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    const ImageSize size = seen_size({image.width, image.height});
    return {resized(image, size.width, size.height, filter_)};
  }
  PreparedMedia prepared_image(const Image& image) const override {
    return prepared(seen(image), MediaType::Image, kImageBegin, kImageEnd);
  }
  std::vector<Image> seen_frames(const VideoFrames& video) const override {
    const ImageSize size = ovis_size({video.frames[0].width, video.frames[0].height}, video_limits_);
    std::vector<Image> frames;
    for (const Image& frame : video.frames) frames.push_back(resized(frame, size.width, size.height, filter_));
    return frames;
  }
  PreparedMedia prepared_video(const VideoFrames& video) const override {
    return prepared(seen_frames(video), MediaType::Video, kVideoBegin, kVideoEnd);
  }

 private:
  PreparedMedia prepared(const std::vector<Image>& pictures, MediaType type, int32_t begin, int32_t end) const {
    auto content = std::make_shared<MediaContent>();
    content->type = type;
    const int64_t tokens = fill_with_patches(*content, pictures, form_, scale_, "ovis");
    std::vector<int32_t> run(static_cast<size_t>(tokens) + 2, kAtom);
    run.front() = begin, run.back() = end;
    return {content, "<|image_pad|>\n", place_, {std::move(run)}};
  }

  PixelScale scale_;
  Filter filter_;
  int32_t place_;
  PatchForm form_;
  SizeLimits limits_, video_limits_;
};

const RegisterMediaFamily ovis({"ovis2_5"},
                               [](const MediaCheckpoint& c) { return std::make_shared<OvisProcessor>(c); });

}  // namespace
}  // namespace apus
