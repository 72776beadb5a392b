// SPDX-License-Identifier: Apache-2.0
// Qwen2-VL, Qwen2.5-VL, Qwen3-VL, the Omni models and those that see as they do: pictures near their own size, cut into
// patches; a video's frames two by two (LLaVA-OneVision 1.5: one by one). The Omni models hear besides.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "media/pixel_form.h"
#include "media/processor.h"
#include "media/sound.h"
#include "media/sound_in_video.h"

namespace apus {

namespace {

// Tokens of a second's hundred frames and their rest, by the halvings of each tower.
int64_t omni2_tokens(int64_t frames) { return (frames + 1) / 2 / 2; }
int64_t omni3_tokens(int64_t frames) { return rows_of_frames(frames, 100); }

struct QwenFamily {
  PixelScale scale;
  int64_t patch = 14;
  bool stamped = false;     // each group of frames is a picture of its own behind its time
  bool thousandths = true;  // boxes; else pixels of the resized picture
  bool marks_boxes = true;  // there are tokens around boxes and names
  const char *open = "<|vision_start|>", *image = "<|image_pad|>", *video = "<|video_pad|>", *close = "<|vision_end|>";
  const char* key = "_token_id";  // of config.json, behind image, video and audio
  const char *sound_open = nullptr, *sound = nullptr, *sound_close = nullptr;  // null: it does not hear
  int64_t (*sound_tokens)(int64_t frames) = nullptr;
  int64_t sound_seconds = 0;        // sounds are padded to so many; 0: they are cut to whole frames
  double positions_per_second = 0;  // of a video, where the checkpoint does not say it
  bool turns = false;               // a video and its own sound take turns in chunks
};

class QwenVlProcessor : public MediaProcessor {
 public:
  QwenVlProcessor(const MediaCheckpoint& c, const QwenFamily& family)
      : MediaProcessor(c.max_pixels),
        family_(family),
        scale_(pixel_scale(c.preprocessor, family.scale)),
        filter_(pixel_filter(c.preprocessor, Filter::Bicubic)),
        image_(c.token(family.image, str("image", family.key))),
        video_(c.token(family.video, str("video", family.key))) {
    form_.patch = c.whole("patch_size", "vision_config", "patch_size", family.patch);
    form_.merge = c.whole("merge_size", "vision_config", "spatial_merge_size", 2);
    form_.time = c.whole("temporal_patch_size", "vision_config", "temporal_patch_size", 2);
    const int64_t area = form_.factor() * form_.factor();
    const SizeLimits usual{form_.factor(), 4 * area, 16384 * area};
    limits_ = size_limits(c.preprocessor, c.settings, "IMAGE", usual);
    video_limits_ = size_limits(c.preprocessor, c.settings, "VIDEO", usual);
    // As qwen-vl-utils has it, and not the checkpoint's files: all frames together must leave room for a text.
    frame_limits_ = size_limits(Json(), c.settings, "VIDEO", {form_.factor(), 128 * area, 768 * area});
    all_pixels_ = 0.9 * static_cast<double>(c.settings.get("MODEL_SEQ_LEN", 128000)) * static_cast<double>(area);
    rules_.rate = c.settings.number("FPS").value_or(rules_.rate);
    rules_.least = c.settings.get("FPS_MIN_FRAMES", rules_.least);
    rules_.most = c.settings.get("FPS_MAX_FRAMES", rules_.most);
    rules_.count = c.settings.get("NFRAMES", 0);
    if (!family.sound) return;
    sound_ = c.token(family.sound, str("audio", family.key));
    mels_ = c.whole("feature_size", "audio_config", "num_mel_bins", 128);
    hears_videos_ = c.settings.number("USE_AUDIO_IN_VIDEO").value_or(0) > 0;
    per_second_ = config_number(c, "position_id_per_seconds", family.positions_per_second);
    if (family.turns) chunk_ = static_cast<int64_t>(per_second_ * config_number(c, "seconds_per_chunk", 2));
  }

  PreparedMedia sound(const std::vector<float>& samples) const override {
    if (!family_.sound) return MediaProcessor::sound(samples);
    auto content = std::make_shared<MediaContent>();
    content->type = MediaType::Audio;
    int64_t frames = 0;
    content->values = log_mel(samples, mels_, family_.sound_seconds * kSoundRate, frames);
    content->shape = {mels_, frames};
    content->digest = content_digest(*content, "mel", {});
    const int64_t tokens = family_.sound_tokens(frames);
    require(tokens > 0, Fault::Data, "a sound of ", samples.size(), " samples is too short to be heard");
    PreparedMedia out{content, str(family_.sound_open, family_.sound, family_.sound_close), sound_, {}};
    out.runs.emplace_back(static_cast<size_t>(tokens), sound_);
    return out;
  }

  bool hears_videos() const override { return hears_videos_; }
  PreparedMedia video_with_sound(VideoFrames frames, const std::vector<float>& samples) const override {
    PreparedMedia out = video(std::move(frames)), heard = sound(samples);
    const PatchGrid grid{out.content->grid[0], out.content->grid[1], out.content->grid[2]};
    const int64_t cells = grid.height * grid.width / (form_.merge * form_.merge);
    const auto seconds = static_cast<float>(out.content->seconds_per_grid > 0 ? out.content->seconds_per_grid : 1);
    std::vector<double> times;  // as the model places them
    for (int64_t cell = 0; cell < grid.time * cells; ++cell) {
      const float time = static_cast<float>(cell / cells) * seconds * static_cast<float>(per_second_);
      times.push_back(chunk_ > 0 ? std::trunc(time) : time);
    }
    std::vector<int32_t> tokens;
    for (const VideoTurn& turn : turns_of_video_and_sound(times, std::ssize(heard.runs[0]), chunk_))
      tokens.insert(tokens.end(), static_cast<size_t>(turn.count), turn.sound ? sound_ : video_);
    out.text = str(family_.open, family_.sound_open, family_.video, family_.sound_close, family_.close);
    out.runs = {std::move(tokens)};
    out.sound = heard.content, out.sound_placeholder = sound_;
    return out;
  }

  ImageSize seen_size(ImageSize size) const override { return smart_size(size, limits_); }
  std::vector<int64_t> chosen_frames(int64_t total, double rate) const override {
    return even_frames(total, rate, rules_);
  }
  Image kept_frame(Image frame, int64_t count) const override {
    SizeLimits limits = frame_limits_;
    const auto share = static_cast<int64_t>(all_pixels_ / static_cast<double>(count) * 2);
    const auto least = static_cast<int64_t>(1.05 * static_cast<double>(limits.min_pixels));
    limits.max_pixels = std::max(std::min(limits.max_pixels, share), least);
    const ImageSize size = smart_size({frame.width, frame.height}, limits);
    return resized(frame, size.width, size.height, filter_);
  }
  std::vector<int32_t> media_tokens() const override {
    return family_.sound ? std::vector<int32_t>{image_, video_, sound_} : std::vector<int32_t>{image_, video_};
  }
  BoxForm boxes() const override {
    if (!family_.marks_boxes) return MediaProcessor::boxes();
    const char* form = std::getenv("QWENVL_BBOX_FORMAT");
    if (form && form == std::string_view("new")) return {family_.thousandths, "", "", "[", "]", false};
    return {family_.thousandths, "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>", true};
  }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    const ImageSize size = seen_size({image.width, image.height});
    return {resized(image, size.width, size.height, filter_)};
  }

  std::vector<Image> seen_frames(const VideoFrames& video) const override {
    const Image& first = video.frames[0];
    const ImageSize size = smart_size({first.width, first.height}, video_limits_);
    std::vector<Image> frames;
    for (const Image& frame : video.frames) frames.push_back(resized(frame, size.width, size.height, filter_));
    return frames;
  }

  PreparedMedia prepared_image(const Image& image) const override {
    auto content = std::make_shared<MediaContent>();
    const int64_t tokens = fill(*content, seen(image));
    PreparedMedia out{content, str(family_.open, family_.image, family_.close), image_, {}};
    out.runs.emplace_back(static_cast<size_t>(tokens), image_);
    return out;
  }

  PreparedMedia prepared_video(const VideoFrames& video) const override {
    const std::vector<Image> frames = seen_frames(video);
    auto content = std::make_shared<MediaContent>();
    content->type = MediaType::Video;
    if (video.taken_rate > 0) content->seconds_per_grid = static_cast<double>(form_.time) / video.taken_rate;
    const int64_t tokens = fill(*content, frames);
    const std::string one = str(family_.open, family_.video, family_.close);
    PreparedMedia out{content, one, video_, {}};
    if (!family_.stamped) {
      out.runs.emplace_back(static_cast<size_t>(tokens), video_);
      return out;
    }
    out.text.clear();
    for (const double seconds : group_seconds(video.at, video.rate, form_.time)) {
      char stamp[48];
      std::snprintf(stamp, sizeof stamp, "<%.1f seconds>", seconds);
      out.text += stamp + one;
      out.runs.emplace_back(static_cast<size_t>(tokens / content->grid[0]), video_);
    }
    return out;
  }

 private:
  static double config_number(const MediaCheckpoint& c, const char* name, double otherwise) {
    return c.config.contains(name) && c.config[name].is_number() ? c.config[name].get<double>() : otherwise;
  }
  int64_t fill(MediaContent& content, const std::vector<Image>& pictures) const {
    return fill_with_patches(content, pictures, form_, scale_, "patches");
  }

  QwenFamily family_;
  PixelScale scale_;
  Filter filter_;
  int32_t image_, video_, sound_ = 0;
  int64_t mels_ = 128;
  PatchForm form_;
  SizeLimits limits_, video_limits_, frame_limits_;
  double all_pixels_ = 0;  // of a video's frames
  bool hears_videos_ = false;
  double per_second_ = 0;
  int64_t chunk_ = 0;  // positions after which a video and its sound take turns
  FrameRules rules_;
};

MakeMediaProcessor qwen(const QwenFamily& family) {
  return [family](const MediaCheckpoint& c) { return std::make_shared<QwenVlProcessor>(c, family); };
}

const RegisterMediaFamily qwen2_vl({"qwen2_vl"}, qwen({.scale = kClipScale}));
const RegisterMediaFamily qwen2_5_vl({"qwen2_5_vl"}, qwen({.scale = kClipScale, .thousandths = false}));
const RegisterMediaFamily llava_onevision1_5({"llavaonevision1_5"}, qwen({.scale = kClipScale, .marks_boxes = false}));
const RegisterMediaFamily exaone4_5(
    {"exaone4_5"}, qwen({.scale = kClipScale, .marks_boxes = false, .open = "<vision>", .close = "</vision>"}));
const RegisterMediaFamily qwen3_vl({"qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"},
                                   qwen({.scale = kHalfScale, .patch = 16, .stamped = true}));
const RegisterMediaFamily qwen2_5_omni({"qwen2_5_omni", "qwen2_5_omni_thinker"}, qwen({.scale = kClipScale,
                                                                                       .thousandths = false,
                                                                                       .open = "<|vision_bos|>",
                                                                                       .image = "<|IMAGE|>",
                                                                                       .video = "<|VIDEO|>",
                                                                                       .close = "<|vision_eos|>",
                                                                                       .key = "_token_index",
                                                                                       .sound_open = "<|audio_bos|>",
                                                                                       .sound = "<|AUDIO|>",
                                                                                       .sound_close = "<|audio_eos|>",
                                                                                       .sound_tokens = omni2_tokens,
                                                                                       .sound_seconds = 300,
                                                                                       .positions_per_second = 25,
                                                                                       .turns = true}));
const RegisterMediaFamily qwen3_omni({"qwen3_omni_moe", "qwen3_omni_moe_thinker"},
                                     qwen({.scale = kHalfScale,
                                           .patch = 16,
                                           .sound_open = "<|audio_start|>",
                                           .sound = "<|audio_pad|>",
                                           .sound_close = "<|audio_end|>",
                                           .sound_tokens = omni3_tokens,
                                           .positions_per_second = 13}));

}  // namespace
}  // namespace apus
