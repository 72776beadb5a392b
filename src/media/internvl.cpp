// SPDX-License-Identifier: Apache-2.0
// InternVL 2.5 to 3.5, and SAIL-VL2: a picture as a grid of square tiles, and all of it once more in one tile.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "media/pixel_form.h"
#include "media/processor.h"

namespace apus {

namespace {

// A side that files write as a number, as [height, width] or as {"height", "width"}.
std::optional<int64_t> side_of(const Json& value) {
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_array() && !value.empty()) return side_of(value[0]);
  if (value.is_object() && value.contains("height")) return side_of(value["height"]);
  return std::nullopt;
}

std::optional<int64_t> side_at(const Json& object, const char* name) {
  return object.is_object() && object.contains(name) ? side_of(object[name]) : std::nullopt;
}

class InternVlProcessor : public MediaProcessor {
 public:
  explicit InternVlProcessor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        scale_(pixel_scale(c.preprocessor, kImageNetScale)),
        filter_(pixel_filter(c.preprocessor, Filter::Bicubic)),
        token_(c.token("<IMG_CONTEXT>", "image_token_id")) {
    const Json vision = c.config.value("vision_config", Json::object());
    const int64_t of_tower = side_at(vision, "image_size").value_or(448);
    side_ = c.settings.get("INPUT_SIZE", side_at(c.config, "force_image_size").value_or(of_tower));
    const int64_t patch = side_at(vision, "patch_size").value_or(14);
    const double ratio = c.config.contains("downsample_ratio") && c.config["downsample_ratio"].is_number()
                             ? c.config["downsample_ratio"].get<double>()
                             : 0.5;
    const auto cells = static_cast<double>(side_ / std::max<int64_t>(patch, 1)) * ratio;
    tokens_ = static_cast<int64_t>(cells * cells);
    require(patch > 0 && side_ % patch == 0 && side_ <= 4096 && tokens_ >= 1, Fault::Model, "tiles of ", side_,
            " pixels do not consist of patches of ", patch, "; check INPUT_SIZE and config.json");
    least_ = number(c, "min_patches", "min_dynamic_patch", 1);
    most_ = c.settings.get("MAX_NUM", most_tiles(c));
    images_only_ = c.config.value("model_type", "") == "sailvl";
    frame_tiles_ = c.settings.get("VIDEO_MAX_NUM", 1);
    segments_ = c.settings.get("VIDEO_SEGMENTS", 8);
    require(least_ >= 1 && most_ >= least_ && most_ <= 1024 && frame_tiles_ <= 1024, Fault::Usage, "from ", least_,
            " to ", most_, " tiles: check MAX_NUM");
  }

  ImageSize seen_size(ImageSize size) const override {
    const TileGrid grid = tile_grid(size, least_, most_, side_);
    return {grid.columns * side_, grid.rows * side_};
  }
  std::vector<int64_t> chosen_frames(int64_t total, double) const override {
    return middle_frames(total, std::min(total, segments_));
  }
  std::vector<int32_t> media_tokens() const override { return {token_}; }
  BoxForm boxes() const override { return {true, "<ref>", "</ref>", "<box>[[", "]]</box>", false}; }
  std::string values_name(MediaType) const override { return "pixel_values"; }
  std::string grid_name(MediaType) const override { return ""; }

 protected:
  std::vector<Image> seen(const Image& image) const override { return tiles(image, least_, most_); }

  std::vector<Image> seen_frames(const VideoFrames& video) const override {
    std::vector<Image> all;
    for (const Image& frame : video.frames)
      for (Image& tile : frame_tiles(frame)) all.push_back(std::move(tile));
    return all;
  }

  PreparedMedia prepared_image(const Image& image) const override {
    auto content = std::make_shared<MediaContent>();
    const auto pictures = seen(image);
    fill(*content, pictures);
    PreparedMedia out{content, "<img><IMG_CONTEXT></img>\n", token_, {}};
    out.runs.emplace_back(pictures.size() * static_cast<size_t>(tokens_), token_);
    return out;
  }

  PreparedMedia prepared_video(const VideoFrames& video) const override {
    if (images_only_) return MediaProcessor::prepared_video(video);
    auto content = std::make_shared<MediaContent>();
    content->type = MediaType::Video;
    std::vector<Image> all;
    PreparedMedia out{content, "", token_, {}};
    for (size_t k = 0; k < video.frames.size(); ++k) {
      std::vector<Image> pictures = frame_tiles(video.frames[k]);
      out.text += str("Frame", k + 1, ": <img><IMG_CONTEXT></img>\n");
      out.runs.emplace_back(pictures.size() * static_cast<size_t>(tokens_), token_);
      std::move(pictures.begin(), pictures.end(), std::back_inserter(all));
    }
    fill(*content, all);
    return out;
  }

 private:
  // SAIL-VL2's processor does not look at config.json, and one of its settings makes further tiles.
  static int64_t most_tiles(const MediaCheckpoint& c) {
    if (c.config.value("model_type", "") != "sailvl") return number(c, "max_patches", "max_dynamic_patch", 12);
    const Json& file = c.preprocessor;
    require(!file.is_object() || file.value("use_msac", Json(false)) == false, Fault::Model,
            "preprocessor_config.json: use_msac true (a second grid of tiles) is not supported; set it to false");
    return side_at(file, "max_dynamic_patch").value_or(10);
  }
  static int64_t number(const MediaCheckpoint& c, const char* native, const char* original, int64_t otherwise) {
    const auto said = side_at(c.preprocessor, native);
    return said ? *said : side_at(c.config, original).value_or(otherwise);
  }

  std::vector<Image> tiles(const Image& image, int64_t least, int64_t most) const {
    const TileGrid grid = tile_grid({image.width, image.height}, least, most, side_);
    const Image whole = resized(image, grid.columns * side_, grid.rows * side_, filter_);
    std::vector<Image> out;
    add_tiles(whole, side_, side_, out);
    if (out.size() > 1) out.push_back(resized(image, side_, side_, filter_));
    return out;
  }

  std::vector<Image> frame_tiles(const Image& frame) const {
    return tiles(frame, std::min(least_, frame_tiles_), frame_tiles_);
  }

  void fill(MediaContent& content, const std::vector<Image>& pictures) const {
    content.values = pixel_planes(pictures, scale_);
    content.shape = {static_cast<int64_t>(pictures.size()), 3, side_, side_};
    content.digest = content_digest(content, str("tiles ", form_text(scale_)), pictures);
  }

  PixelScale scale_;
  Filter filter_;
  int32_t token_;
  bool images_only_ = false;
  int64_t side_ = 448, tokens_ = 256, least_ = 1, most_ = 12, frame_tiles_ = 1, segments_ = 8;
};

const RegisterMediaFamily internvl({"internvl", "internvl_chat", "interns1", "qianfan_ocr", "sailvl"},
                                   [](const MediaCheckpoint& c) { return std::make_shared<InternVlProcessor>(c); });

}  // namespace
}  // namespace apus
