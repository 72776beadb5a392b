// SPDX-License-Identifier: Apache-2.0
#include "media/processor.h"

#include <cmath>

#include "base/digest.h"
#include "base/files.h"
#include "media/resize.h"
#include "text/tokenizer.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kMostFrames = 768;

// A whole number at `name`, or nothing.
std::optional<int64_t> whole_number(const Json& object, const char* name) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int64_t>();
}

}  // namespace

Image MediaProcessor::capped(const Image& image) const {
  if (!max_pixels_ || image.width * image.height <= *max_pixels_) return image;
  const double shape = static_cast<double>(image.width) / static_cast<double>(image.height);
  const double height = std::sqrt(static_cast<double>(*max_pixels_) / shape);
  return resized(image, std::max<int64_t>(1, static_cast<int64_t>(height * shape)),
                 std::max<int64_t>(1, static_cast<int64_t>(height)), Filter::Bilinear);
}

VideoFrames MediaProcessor::checked(VideoFrames video) const {
  require(!video.frames.empty(), Fault::Data, "a video without frames");
  require(static_cast<int64_t>(video.frames.size()) <= kMostFrames, Fault::Data, "a video of ", video.frames.size(),
          " frames; at most ", kMostFrames, " are taken");
  for (Image& frame : video.frames) frame = capped(frame);
  return video;
}

PreparedMedia MediaProcessor::prepared_video(const VideoFrames&) const {
  fail(Fault::Data, "this model sees no videos");
}

std::vector<Image> MediaProcessor::seen_frames(const VideoFrames&) const {
  fail(Fault::Data, "this model sees no videos");
}

PreparedMedia MediaProcessor::sound(const std::vector<float>&) const { fail(Fault::Data, "this model does not hear"); }

PreparedMedia MediaProcessor::video_with_sound(VideoFrames, const std::vector<float>&) const {
  fail(Fault::Data, "this model does not hear");
}

std::string MediaProcessor::values_name(MediaType type) const {
  if (type == MediaType::Audio) return "input_features";
  return type == MediaType::Video ? "pixel_values_videos" : "pixel_values";
}

std::string MediaProcessor::grid_name(MediaType type) const {
  if (type == MediaType::Audio) return "";
  return type == MediaType::Video ? "video_grid_thw" : "image_grid_thw";
}

int32_t MediaCheckpoint::token(const std::string& text, const std::string& key) const {
  const auto said = whole_number(config, key.c_str());
  if (!tokenizer) return static_cast<int32_t>(said.value_or(0));
  const auto known = tokenizer->id(text);
  require(known.has_value(), Fault::Model, "the tokenizer does not know ", text,
          ", which stands for a medium: its files belong to another model");
  require(!said || *said == *known, Fault::Model, "config.json says ", key, " = ", said.value_or(0), ", but ", text,
          " has the number ", *known, " in the tokenizer: files of two models");
  return *known;
}

int64_t MediaCheckpoint::whole(const char* name, const char* section, const char* name_there, int64_t otherwise) const {
  const bool has = config.is_object() && config.contains(section);
  const auto model = has ? whole_number(config[section], name_there) : std::nullopt;
  const auto said = whole_number(preprocessor, name);
  const int64_t value = said ? *said : model.value_or(otherwise);
  require(value >= 1 && value <= 4096, Fault::Model, name, " is ", value, " in the checkpoint's files");
  return value;
}

std::shared_ptr<const MediaProcessor> make_media_processor(const MediaCheckpoint& checkpoint) {
  const std::string type = checkpoint.config.is_object() ? checkpoint.config.value("model_type", "") : "";
  const MakeMediaProcessor* make = Registry<MakeMediaProcessor>::of().find(type);
  return make ? (*make)(checkpoint) : nullptr;
}

namespace {
Json file_in(const fs::path& folder, const char* name) {
  const fs::path path = folder / name;
  std::error_code code;
  return fs::exists(path, code) ? parse_json(read_file(path, 16 << 20), path.string()) : Json();
}
}  // namespace

Transcription MediaProcessor::transcription(const std::string& language) const {
  if (language.empty()) return {};
  return {.ask = str("Write down what is said. It is said in this language: ", language)};
}

Json preprocessor_in(const fs::path& model_dir) {
  Json own = file_in(model_dir, "preprocessor_config.json");
  if (!own.is_null()) return own;
  const Json whole = file_in(model_dir, "processor_config.json");
  for (const char* part : {"image_processor", "feature_extractor"})
    if (whole.is_object() && whole.contains(part)) return whole[part];
  return {};
}

std::shared_ptr<const MediaProcessor> open_media_processor(const fs::path& model_dir, const Tokenizer* tokenizer,
                                                           const MediaOptions& options) {
  Json config = file_in(model_dir, "config.json");
  // An omni model's seeing and hearing part stands inside its configuration.
  if (config.is_object() && config.contains("thinker_config") && config["thinker_config"].is_object()) {
    const Json whole = std::exchange(config, config["thinker_config"]);
    config["model_type"] = whole.value("model_type", "");
  }
  auto made = make_media_processor({std::move(config), preprocessor_in(model_dir), tokenizer, options.settings(),
                                    options.max_pixels, file_in(model_dir, "processor_config.json"),
                                    file_in(model_dir, "video_preprocessor_config.json")});
  require(made || !options.given(), Fault::Usage,
          "--max_pixels, --model_kwargs and --media_cache_mb are for models that see, and this one reads text only");
  return made;
}

std::string content_digest(const MediaContent& content, const std::string& form, const std::vector<Image>& pictures) {
  std::string all = str(static_cast<int>(content.type), ' ', form, ' ', content.seconds_per_grid);
  for (const int64_t n : content.shape) all += str(' ', n);
  for (const int64_t n : content.grid) all += str(' ', n);
  for (const int64_t n : content.came_as) all += str(' ', n);
  for (const Image& picture : pictures) {
    all += str(" ", picture.width, "x", picture.height, " ");
    all.append(reinterpret_cast<const char*>(picture.rgb.data()), picture.rgb.size());
  }
  if (pictures.empty())
    all.append(reinterpret_cast<const char*>(content.values.data()), content.values.size() * sizeof(float));
  return hex_digest(all, 16);
}

}  // namespace apus
