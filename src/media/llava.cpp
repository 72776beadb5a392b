// SPDX-License-Identifier: Apache-2.0
// Llava 1.5: a picture as one square; with Pixtral's tower it sees as Pixtral does. Llava 1.6 and OneVision: one square
// and a grid of them; of videos each frame is one square. Of Llava 1.6's own files a picture's token is a number that
// no tokenizer knows.
#include "base/error.h"
#include "media/mosaic.h"
#include "media/square.h"
#include "text/tokenizer.h"

namespace apus {

namespace {

class LlavaProcessor : public MediaProcessor {
 public:
  explicit LlavaProcessor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        square_(c, kClipScale, Filter::Bicubic, of_tower(c, "image_size", 336)),
        token_(c.token("<image>", "image_token_index")) {
    const int64_t cells = square_.side() / std::max<int64_t>(of_tower(c, "patch_size", 14), 1);
    tokens_ = static_cast<size_t>(cells * cells);
  }
  ImageSize seen_size(ImageSize) const override { return {square_.side(), square_.side()}; }
  std::vector<int32_t> media_tokens() const override { return {token_}; }
  std::string grid_name(MediaType) const override { return ""; }

 protected:
  std::vector<Image> seen(const Image& image) const override { return {square_(image)}; }
  PreparedMedia prepared_image(const Image& image) const override {
    PreparedMedia out{square_.content(seen(image), "llava"), "<image>", token_, {}};
    out.runs.emplace_back(tokens_, token_);
    return out;
  }

 private:
  SquareForm square_;
  int32_t token_;
  size_t tokens_ = 0;
};

bool is_own_llava(const MediaCheckpoint& c) { return c.config.contains("mm_vision_tower"); }

MosaicForm mosaic_of(const MediaCheckpoint& c) {
  const int64_t side = of_tower(c, "image_size", 336);
  const int64_t cells = side / std::max<int64_t>(of_tower(c, "patch_size", 14), 1);
  return is_own_llava(c) ? read_own_mosaic(c.config, side, cells) : read_mosaic(c.config, side, cells);
}

class MosaicProcessor : public MediaProcessor {
 public:
  explicit MosaicProcessor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        form_(mosaic_of(c)),
        scale_(pixel_scale(c.preprocessor, kClipScale)),
        filter_(pixel_filter(c.preprocessor, Filter::Bicubic)) {
    if (is_own_llava(c)) {
      use_own_token(c);
      return;
    }
    token_ = place_ = c.token("<image>", "image_token_index");
    const std::string type = c.config.value("model_type", "");
    form_.frames_pooled = type == "llava_next_video";
    if (type == "llava_next") return;
    video_ = c.token("<video>", "video_token_index");
    const char* const setting = form_.frames_pooled ? "NUM_FRAMES" : "NFRAMES";
    frames_ = c.settings.get(setting, form_.frames_pooled ? 16 : 32);
    require(frames_ > 0, Fault::Usage, setting, " must be above 0, it is ", frames_);
  }
  std::vector<int64_t> chosen_frames(int64_t total, double rate) const override {
    if (form_.frames_pooled) return spread_frames(total, frames_);
    return qwen3_frames(total, rate, {.least = frames_, .most = frames_});
  }
  Image kept_frame(Image frame, int64_t) const override { return as_frame(frame); }
  ImageSize seen_size(ImageSize size) const override { return fitted_size(size, best_size(size, form_.sizes)); }
  std::vector<int32_t> media_tokens() const override {
    return frames_ > 0 ? std::vector<int32_t>{token_, video_} : std::vector<int32_t>{token_};
  }
  std::string grid_name(MediaType) const override { return ""; }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    const ImageSize own{image.width, image.height}, ground = best_size(own, form_.sizes), size = seen_size(own);
    const Image large = laid_on(resized(image, size.width, size.height, filter_), ground,
                                (ground.width - size.width) / 2, (ground.height - size.height) / 2, {});
    std::vector<Image> out{resized(image, form_.side, form_.side, filter_)};
    add_tiles(large, form_.side, form_.side, out);
    return out;
  }
  PreparedMedia prepared_image(const Image& image) const override {
    const std::vector<Image> tiles = seen(image);
    auto content = std::make_shared<MediaContent>();
    content->values = pixel_planes(tiles, scale_);
    content->shape = {static_cast<int64_t>(tiles.size()), 3, form_.side, form_.side};
    content->came_as = {image.height, image.width};
    content->digest = content_digest(*content, str("mosaic ", form_text(scale_)), tiles);
    PreparedMedia out{content, text_, place_, {}};
    const int64_t tokens = mosaic_cells({image.width, image.height}, form_).rows(form_);
    out.runs.emplace_back(static_cast<size_t>(tokens), token_);
    return out;
  }
  std::vector<Image> seen_frames(const VideoFrames& video) const override {
    if (frames_ == 0) return MediaProcessor::seen_frames(video);
    std::vector<Image> out;
    for (const Image& frame : video.frames) out.push_back(as_frame(frame));
    return out;
  }
  PreparedMedia prepared_video(const VideoFrames& video) const override {
    if (frames_ == 0) return MediaProcessor::prepared_video(video);
    const std::vector<Image> frames = seen_frames(video);
    auto content = std::make_shared<MediaContent>();
    content->type = MediaType::Video;
    content->values = pixel_planes(frames, scale_);
    content->shape = {std::ssize(frames), 3, form_.side, form_.side};
    content->digest = content_digest(*content, str("mosaic ", form_text(scale_)), frames);
    PreparedMedia out{content, "<video>", video_, {}};
    out.runs.emplace_back(static_cast<size_t>(form_.video_rows(std::ssize(frames))), video_);
    return out;
  }

 private:
  // One that no text has holds the picture's place until its tokens stand there.
  void use_own_token(const MediaCheckpoint& c) {
    token_ = kOwnLlavaImage;
    for (const char* token : {"<|reserved_special_token_0|>", "<|object_ref_start|>", "<unk>", "<|endoftext|>"}) {
      if (c.tokenizer && !c.tokenizer->id(token)) continue;
      text_ = str(token, "\n"), place_ = c.tokenizer ? static_cast<int32_t>(*c.tokenizer->id(token)) : 0;
      return;
    }
    fail(Fault::Model,
         "the tokenizer knows none of <|reserved_special_token_0|>, <unk> and <|endoftext|>, one of which "
         "holds a picture's place: its files belong to another model");
  }
  // Pooled frames are the middle of what the shorter side was brought to.
  Image as_frame(const Image& frame) const {
    const int64_t side = form_.side;
    if (!form_.frames_pooled) return resized(frame, side, side, filter_);
    const int64_t shorter = std::min(frame.width, frame.height), longer = std::max(frame.width, frame.height);
    const int64_t other = side * longer / shorter;
    const ImageSize size = frame.width <= frame.height ? ImageSize{side, other} : ImageSize{other, side};
    return cropped(resized(frame, size.width, size.height, filter_), (size.width - side) / 2, (size.height - side) / 2,
                   side, side);
  }

  MosaicForm form_;
  PixelScale scale_;
  Filter filter_;
  std::string text_ = "<image>";
  int32_t token_ = 0, place_ = 0, video_ = 0;
  int64_t frames_ = 0;  // that are taken of a video file; 0: it sees no videos
};

std::shared_ptr<const MediaProcessor> make(const MediaCheckpoint& c) {
  if (is_own_llava(c)) return std::make_shared<MosaicProcessor>(c);
  const Json vision = c.config.value("vision_config", Json::object());
  if (vision.value("model_type", "") == "pixtral") return (*Registry<MakeMediaProcessor>::of().find("mistral3"))(c);
  return std::make_shared<LlavaProcessor>(c);
}

const RegisterMediaFamily llava({"llava"}, make);
const RegisterMediaFamily mosaics({"llava_next", "llava_next_video", "llava_onevision", "llava_llama", "llava_mistral",
                                   "llava_qwen"},
                                  [](const MediaCheckpoint& c) { return std::make_shared<MosaicProcessor>(c); });

}  // namespace
}  // namespace apus
