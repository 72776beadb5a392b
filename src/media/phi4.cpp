// SPDX-License-Identifier: Apache-2.0
// Phi-4-multimodal: a picture in as few squares as hold its pixels, or, where they are more than dynamic_hd, in those
// whose shape is nearest; enlarged to them from the upper left corner, the rest white. All of that in one square more,
// out of its numbers. Whole patches of white at the edges become no tokens.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "media/mosaic.h"
#include "media/sound.h"
#include "media/square.h"
#include "text/tokenizer.h"

namespace apus {

namespace {

class Phi4Processor final : public MediaProcessor {
 public:
  explicit Phi4Processor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        patch_(c.whole("patch_size", "vision_config", "patch_size", 14)),
        side_(side_of(c)),
        most_(c.whole("dynamic_hd", "vision_config", "dynamic_hd", 36)),
        form_{.sizes = {},
              .side = side_,
              .cells = side_ / (2 * patch_),
              .in_lines = true,
              .whole_last = true,
              .cut_patch = patch_},
        scale_(pixel_scale(c.preprocessor, kHalfScale)),
        resize_(c.config.value("model_type", "") == "phi4mm" ? resized : resized_as_torch),
        bands_(c.whole("feature_size", "audio_config", "input_size", 80)),
        image_(word_of(c, "vision_config", "image_token_id", 200010, "<|endoftext10|>")),
        sound_(word_of(c, "audio_config", "audio_token_id", 200011, "<|endoftext11|>")) {
    require(side_ % (2 * patch_) == 0, Fault::Model, "preprocessor_config.json: squares of ", side_,
            " pixels in patches of ", patch_, ": only squares of whole 2 x 2 patches are supported");
    for (const char* file : {"audio_processor", "feature_extractor"})
      if (c.processor.is_object() && c.processor.contains(file)) check_extractor(c.processor[file]);
    check_extractor(c.preprocessor);
  }
  ImageSize seen_size(ImageSize size) const override {
    const auto squares = [&](int64_t length) { return (length + side_ - 1) / side_; };
    TileGrid grid{squares(size.width), squares(size.height)};
    if (grid.columns * grid.rows > most_) grid = tile_grid(size, 1, most_, side_);
    return {grid.columns * side_, grid.rows * side_};
  }
  std::vector<int32_t> media_tokens() const override { return {image_.id, sound_.id}; }
  std::string grid_name(MediaType) const override { return ""; }
  PreparedMedia sound(const std::vector<float>& samples) const override {
    auto content = std::make_shared<MediaContent>();
    content->type = MediaType::Audio;
    int64_t frames = 0;
    content->values = log_mel_of_powers(samples, bands_, frames);
    content->shape = {bands_, frames};
    content->digest = content_digest(*content, "mel of powers", {});
    PreparedMedia out{content, sound_.text, sound_.id, {}};
    out.runs.emplace_back(static_cast<size_t>((frames + 7) / 8), sound_.id);
    out.with_others = true;  // beside pictures it goes through another projection
    return out;
  }
  Transcription transcription(const std::string& language) const override {
    if (!language.empty()) return MediaProcessor::transcription(language);
    return {.ask = "Transcribe the audio clip into text."};
  }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    const ImageSize ground = seen_size({image.width, image.height}), size = fitted({image.width, image.height}, ground);
    return {laid_on(resize_(image, size.width, size.height, Filter::Bilinear), ground, 0, 0, {255, 255, 255})};
  }
  PreparedMedia prepared_image(const Image& image) const override {
    const Image large = seen(image).front();
    const auto content = whole_and_squares(large, side_, scale_);
    const ImageSize shown = fitted({image.width, image.height}, {large.width, large.height});
    const auto left = [&](int64_t ground, int64_t own) { return ground - (ground - own) / patch_ * patch_; };
    content->came_as = {left(large.height, shown.height), left(large.width, shown.width)};
    content->digest = content_digest(*content, str("phi4 ", form_text(scale_)), {large});
    PreparedMedia out{content, image_.text, image_.id, {}};
    const MosaicCells cells = mosaic_cells({content->came_as[1], content->came_as[0]}, form_);
    out.runs.emplace_back(static_cast<size_t>(cells.rows(form_)), image_.id);
    return out;
  }

 private:
  // A token that stands for media, as the tokenizer spells it.
  struct Word {
    int32_t id;
    std::string text;
  };
  static Word word_of(const MediaCheckpoint& c, const char* section, const char* key, int64_t usual,
                      const char* spelt) {
    const Json part = c.config.value(section, Json::object());
    const auto id = static_cast<int32_t>(part.is_object() ? part.value(key, usual) : usual);
    if (!c.tokenizer) return {id, spelt};
    require(c.tokenizer->is_added(id), Fault::Model, "the tokenizer has no token of its own under ", id,
            ", which stands for a medium (", key, "): its files belong to another model");
    return {id, c.tokenizer->piece(id)};
  }
  static int64_t side_of(const MediaCheckpoint& c) {
    const Json size = c.preprocessor.is_object() ? c.preprocessor.value("size", Json()) : Json();
    if (!size.is_object() || !size.contains("height")) return of_tower(c, "crop_size", of_tower(c, "image_size", 448));
    require(size.value("width", Json()) == size["height"] && size["height"].is_number_integer() &&
                size["height"].get<int64_t>() > 0 && size["height"].get<int64_t>() <= 4096,
            Fault::Model, "preprocessor_config.json: size ", size.dump(), " is no square");
    return size["height"].get<int64_t>();
  }
  // All known files make spectra alike.
  static void check_extractor(const Json& file) {
    if (!file.is_object()) return;
    const std::pair<const char*, Json> usual[] = {
        {"sampling_rate", 16000},     {"hop_length", 160},      {"n_fft", 512},
        {"win_length", 400},          {"preemphasis", 0.97},    {"audio_compression_rate", 8},
        {"audio_downsample_rate", 1}, {"audio_feat_stride", 1}, {"mel_min_frequency", 0},
        {"mel_max_frequency", 7690}};
    for (const auto& [key, value] : usual)
      require(!file.contains(key) || file[key] == value, Fault::Model, "preprocessor_config.json: ", key, " ",
              file.value(key, Json()).dump(), " is not supported, only ", value.dump());
  }
  // As large as its squares allow.
  static ImageSize fitted(ImageSize own, ImageSize ground) {
    const double across = static_cast<double>(ground.width) / static_cast<double>(own.width),
                 down = static_cast<double>(ground.height) / static_cast<double>(own.height);
    const auto side = [](int64_t length, double scale) {
      return static_cast<int64_t>(static_cast<double>(length) * scale);
    };
    const ImageSize size = across < down ? ImageSize{ground.width, side(own.height, across)}
                                         : ImageSize{side(own.width, down), ground.height};
    constexpr int64_t kLeast = 10;
    require(size.width >= kLeast && size.height >= kLeast, Fault::Data, "a picture of ", own.width, " x ", own.height,
            " pixels is too narrow: of its ", ground.width, " x ", ground.height, " it would fill ", size.width, " x ",
            size.height);
    return size;
  }

  int64_t patch_, side_, most_;
  MosaicForm form_;
  PixelScale scale_;
  Image (*resize_)(const Image&, int64_t, int64_t, Filter);
  int64_t bands_;
  Word image_, sound_;
};

const RegisterMediaFamily phi4({"phi4_multimodal", "phi4mm"},
                               [](const MediaCheckpoint& c) { return std::make_shared<Phi4Processor>(c); });

}  // namespace
}  // namespace apus
