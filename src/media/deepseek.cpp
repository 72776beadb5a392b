// SPDX-License-Identifier: Apache-2.0
// DeepSeek-VL and Janus: a picture in a square that its longer side fills, on the mean colour.
#include <cmath>

#include "base/error.h"
#include "media/square.h"

namespace apus {

namespace {

class DeepseekProcessor : public MediaProcessor {
 public:
  explicit DeepseekProcessor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        square_(c, kHalfScale, Filter::Bicubic, number_of(c, "image_size", 384)),
        scale_(pixel_scale(c.preprocessor, kHalfScale)),
        filter_(pixel_filter(c.preprocessor, Filter::Bicubic)),
        token_(c.token("<image_placeholder>", "image_token_id")) {
    const Json& file = c.preprocessor;
    if (file.is_object() && file.contains("min_size")) least_ = file["min_size"].get<int64_t>();
    const int64_t patch = number_of(c, "patch_size", name_of(c).find("patch14") == std::string::npos ? 16 : 14);
    draws_ = c.config.contains("gen_vision_config");
    require(least_ > 0 && patch > 0 && square_.side() >= patch, Fault::Model, "squares of ", square_.side(),
            " pixels in patches of ", patch, ", no side below ", least_, ": check preprocessor_config.json");
    tokens_ = static_cast<size_t>((square_.side() / patch) * (square_.side() / patch));
  }
  ImageSize seen_size(ImageSize size) const override {
    const double by = static_cast<double>(square_.side()) / static_cast<double>(std::max(size.width, size.height));
    const auto fitted = [&](int64_t side) {
      return std::clamp(static_cast<int64_t>(std::nearbyint(static_cast<double>(side) * by)), least_, square_.side());
    };
    return {fitted(size.width), fitted(size.height)};
  }
  std::vector<int32_t> media_tokens() const override { return {token_}; }
  std::string grid_name(MediaType) const override { return ""; }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    const ImageSize size = seen_size({image.width, image.height});
    const int64_t side = square_.side();
    return {laid_on(resized(image, size.width, size.height, filter_), {side, side}, (side - size.width) / 2,
                    (side - size.height) / 2, mean_colour(scale_))};
  }
  PreparedMedia prepared_image(const Image& image) const override {
    PreparedMedia out{square_.content(seen(image), "deepseek"),
                      draws_ ? "<begin_of_image><image_placeholder><end_of_image>\n" : "<image_placeholder>",
                      token_,
                      {}};
    out.runs.emplace_back(tokens_, token_);
    return out;
  }

 private:
  // Their own files keep the tower's settings one level deeper, and its sizes in a name.
  static Json params_of(const MediaCheckpoint& c) {
    const Json vision = c.config.value("vision_config", Json::object());
    return vision.is_object() && vision.contains("params") ? vision["params"] : Json::object();
  }
  static std::string name_of(const MediaCheckpoint& c) { return params_of(c).value("model_name", ""); }
  static int64_t number_of(const MediaCheckpoint& c, const char* key, int64_t otherwise) {
    return of_tower(c, key, params_of(c).value(key, otherwise));
  }

  SquareForm square_;
  PixelScale scale_;
  Filter filter_;
  int32_t token_;
  bool draws_ = false;  // pictures too, which marks around them tell from those it is given
  int64_t least_ = 14;
  size_t tokens_ = 0;
};

const RegisterMediaFamily deepseek({"deepseek_vl", "multi_modality"},
                                   [](const MediaCheckpoint& c) { return std::make_shared<DeepseekProcessor>(c); });

}  // namespace
}  // namespace apus
