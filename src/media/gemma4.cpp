// SPDX-License-Identifier: Apache-2.0
// Gemma 4: a picture in its own shape and as many patches as fit; of a video each frame is a picture behind its time.
// The model without towers takes squares of 3 x 3 patches, and sounds as they are, in frames of 40 ms.
#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "media/patched.h"
#include "media/sound.h"

namespace apus {

namespace {

int64_t patch_of(const MediaCheckpoint& c) { return c.whole("patch_size", "vision_config", "patch_size", 16); }
int64_t side_of(const MediaCheckpoint& c) {
  return c.whole("pooling_kernel_size", "vision_config", "pooling_kernel_size", 3);
}

class Gemma4Processor : public PatchedProcessor {
 public:
  explicit Gemma4Processor(const MediaCheckpoint& c)
      : Gemma4Processor(c, {.patch = patch_of(c), .merge = side_of(c), .time = 1}, kHalfScale) {
    // The original's model brings numbers from 0 to 1 to numbers from -1 to 1, whatever the file says; here it is done
    // at once.
    use_scale(kHalfScale);
  }
  ImageSize seen_size(ImageSize size) const override { return size_of(size, most_); }
  std::vector<int64_t> chosen_frames(int64_t total, double) const override {
    std::vector<int64_t> chosen;
    const int64_t count = std::min<int64_t>(kFrames, total);
    for (int64_t i = 0; i < count; ++i) chosen.push_back(i * total / count);
    return chosen;
  }
  Image kept_frame(Image frame, int64_t) const override {
    const ImageSize size = size_of({frame.width, frame.height}, kCellsOfFrame);
    return resized(frame, size.width, size.height, filter());
  }
  std::vector<int32_t> media_tokens() const override {
    std::vector<int32_t> tokens = PatchedProcessor::media_tokens();
    tokens.push_back(video_);
    return tokens;
  }

 protected:
  std::vector<Image> seen_frames(const VideoFrames& video) const override {
    std::vector<Image> frames;
    for (const Image& frame : video.frames) frames.push_back(kept_frame(frame, std::ssize(video.frames)));
    return frames;
  }
  PreparedMedia prepared_video(const VideoFrames& video) const override {
    auto content = std::make_shared<MediaContent>();
    content->type = MediaType::Video;
    const std::vector<Image> frames = seen_frames(video);
    const int64_t tokens = fill_with_patches(*content, frames, form(), scale(), "gemma4");
    PreparedMedia out{content, "", video_, {}};
    for (int64_t i = 0; i < content->grid[0]; ++i) {
      const int64_t at = video.at.empty() ? i : video.at[static_cast<size_t>(i)];
      const auto seconds = static_cast<int64_t>(static_cast<double>(at) / (video.rate > 0 ? video.rate : 24));
      char time[48];
      std::snprintf(time, sizeof time, "%02d:%02d", static_cast<int>(seconds / 60), static_cast<int>(seconds % 60));
      out.text += str(i > 0 ? " " : "", time, " <|image><|video|><image|>");
      out.runs.emplace_back(static_cast<size_t>(tokens / content->grid[0]), video_);
    }
    return out;
  }

  int64_t most() const { return most_; }  // tokens of a picture
  Gemma4Processor(const MediaCheckpoint& c, const PatchForm& form, const PixelScale& usual)
      : PatchedProcessor(c, form, usual, {"<|image>", "<|image|>", "<image|>", "image_token_id"}),
        most_(cells(c.preprocessor, "max_soft_tokens", 280)),
        patch_(patch_of(c)),
        side_(side_of(c)),
        video_(c.token("<|video|>", "video_token_id")) {}

 private:
  static constexpr int64_t kFrames = 32, kCellsOfFrame = 70;

  static int64_t cells(const Json& file, const char* key, int64_t usual) {
    const int64_t most = file.is_object() ? file.value(key, usual) : usual;
    require(most > 0 && most <= 1 << 16, Fault::Model, "preprocessor_config.json: ", key, " is ", most);
    return most;
  }
  ImageSize size_of(ImageSize size, int64_t most) const {
    return gemma4_size(size, patch_, patch_ * side_, most * side_ * side_);
  }

  int64_t most_, patch_, side_;
  int32_t video_;
};

class UnifiedProcessor final : public Gemma4Processor {
 public:
  explicit UnifiedProcessor(const MediaCheckpoint& c)
      : Gemma4Processor(c, {.patch = patch_of(c) * side_of(c), .merge = 1, .time = 1}, kBareScale) {
    // All tokens of a picture see each other, in the layers that slide too, which look back no further than this.
    const Json text = c.config.value("text_config", Json::object());
    const int64_t window = text.value("sliding_window", int64_t{1024});
    require(most() <= window, Fault::Model, "preprocessor_config.json: max_soft_tokens ", most(),
            ": layers of this model look back over ", window, " tokens, and a picture may not be larger here");
    if (!c.config.contains("audio_config")) return;
    sound_ = c.token("<|audio|>", "audio_token_id");
    frame_ = c.whole("audio_samples_per_token", "audio_config", "audio_embed_dim", 640);
  }
  PreparedMedia sound(const std::vector<float>& samples) const override {
    if (frame_ == 0) return Gemma4Processor::sound(samples);
    const int64_t frames = (std::ssize(samples) + frame_ - 1) / frame_;
    require(frames > 0, Fault::Data, "a sound without a sample");
    auto content = std::make_shared<MediaContent>();
    content->type = MediaType::Audio;
    content->shape = {frame_, frames};
    content->values.resize(static_cast<size_t>(frame_ * frames));
    for (int64_t i = 0; i < std::ssize(samples); ++i)
      content->values[static_cast<size_t>(i % frame_ * frames + i / frame_)] = samples[static_cast<size_t>(i)];
    content->digest = content_digest(*content, "samples", {});
    PreparedMedia out{content, "<|audio><|audio|><audio|>", sound_, {}};
    out.runs.emplace_back(static_cast<size_t>(frames), sound_);
    return out;
  }
  std::vector<int32_t> media_tokens() const override {
    std::vector<int32_t> tokens = Gemma4Processor::media_tokens();
    if (frame_ > 0) tokens.push_back(sound_);
    return tokens;
  }

 private:
  static constexpr PixelScale kBareScale{{0, 0, 0}, {1, 1, 1}};
  int32_t sound_ = 0;
  int64_t frame_ = 0;  // samples; 0: it does not hear
};

const RegisterMediaFamily unified({"gemma4_unified"},
                                  [](const MediaCheckpoint& c) { return std::make_shared<UnifiedProcessor>(c); });
const RegisterMediaFamily gemma4({"gemma4"},
                                 [](const MediaCheckpoint& c) { return std::make_shared<Gemma4Processor>(c); });

}  // namespace
}  // namespace apus
