// SPDX-License-Identifier: Apache-2.0
// Pixtral and Mistral 3: a picture near its own size in patches, row by row, with a token behind each row; LightOnOCR,
// without such tokens.
#include <algorithm>

#include "base/error.h"
#include "media/square.h"

namespace apus {

namespace {

class PixtralProcessor : public MediaProcessor {
 public:
  explicit PixtralProcessor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        scale_(pixel_scale(c.preprocessor, kClipScale)),
        filter_(pixel_filter(c.preprocessor, Filter::Bicubic)),
        marked_(c.config.value("model_type", "") != "lighton_ocr"),
        token_(c.token(text(), c.config.contains("image_token_id") ? "image_token_id" : "image_token_index")) {
    if (marked_) marks_ = {c.token("[IMG_BREAK]", ""), c.token("[IMG_END]", "")};
    form_ = {of_tower(c, "patch_size", 16), 1, 1};
    if (const auto merge = c.config.find("spatial_merge_size"); merge != c.config.end() && merge->is_number_integer())
      form_.merge = merge->get<int64_t>();
    longest_ = of_tower(c, "image_size", 1024);
    const Json size = c.preprocessor.is_object() ? c.preprocessor.value("size", Json()) : Json();
    if (size.is_object() && size.contains("longest_edge")) longest_ = size["longest_edge"].get<int64_t>();
    require(form_.patch > 0 && form_.merge > 0 && longest_ >= form_.factor() && longest_ <= 1 << 16, Fault::Model,
            "pictures of at most ", longest_, " pixels a side in patches of ", form_.factor(),
            ": check preprocessor_config.json");
  }

  // Never above the longest side, then up to whole patches.
  ImageSize seen_size(ImageSize size) const override {
    const double ratio = static_cast<double>(std::max(size.height, size.width)) / static_cast<double>(longest_);
    const auto fitted = [&](int64_t side) {
      const int64_t within = ratio > 1 ? static_cast<int64_t>(static_cast<double>(side) / ratio) : side;
      return std::max<int64_t>(1, (within - 1) / form_.factor() + 1) * form_.factor();
    };
    return {fitted(size.width), fitted(size.height)};
  }
  std::vector<int32_t> media_tokens() const override {
    std::vector<int32_t> all = marks_;
    all.push_back(token_);
    return all;
  }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    const ImageSize size = seen_size({image.width, image.height});
    return {resized(image, size.width, size.height, filter_)};
  }
  PreparedMedia prepared_image(const Image& image) const override {
    auto content = std::make_shared<MediaContent>();
    fill_with_patches(*content, seen(image), form_, scale_, "pixtral");
    const int64_t height = content->grid[1], width = content->grid[2];
    std::vector<int32_t> run;
    for (int64_t row = 0; row < height; row += form_.merge) {
      run.insert(run.end(), static_cast<size_t>(width / form_.merge), token_);
      if (marked_) run.push_back(marks_[row + form_.merge < height ? 0 : 1]);
    }
    return {content, text(), token_, {std::move(run)}};
  }

 private:
  const char* text() const { return marked_ ? "[IMG]" : "<|image_pad|>"; }

  PixelScale scale_;
  Filter filter_;
  bool marked_;
  int32_t token_;
  std::vector<int32_t> marks_ = {};  // behind a row, and behind the last one
  PatchForm form_;
  int64_t longest_ = 1024;
};

const RegisterMediaFamily pixtral({"mistral3", "lighton_ocr"},
                                  [](const MediaCheckpoint& c) { return std::make_shared<PixtralProcessor>(c); });

}  // namespace
}  // namespace apus
