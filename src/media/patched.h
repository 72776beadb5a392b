// SPDX-License-Identifier: Apache-2.0
// What families share that see pictures near their own size, cut into patches, with one run of equal tokens for each.
#pragma once

#include "media/pixel_form.h"
#include "media/processor.h"

namespace apus {

class PatchedProcessor : public MediaProcessor {
 public:
  // The text of a picture, and the token in it that stands for its cells; `key`: where config.json has its number.
  struct Words {
    const char *before, *token, *behind, *key;
  };
  PatchedProcessor(const MediaCheckpoint& c, const PatchForm& form, const PixelScale& usual, const Words& words)
      : MediaProcessor(c.max_pixels),
        form_(form),
        scale_(pixel_scale(c.preprocessor, usual)),
        filter_(pixel_filter(c.preprocessor, Filter::Bicubic)),
        words_(words),
        token_(c.token(words.token, words.key)) {}
  std::vector<int32_t> media_tokens() const override { return {token_}; }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    const ImageSize size = seen_size({image.width, image.height});
    return {resized(image, size.width, size.height, filter_)};
  }
  PreparedMedia prepared_image(const Image& image) const override {
    auto content = std::make_shared<MediaContent>();
    const int64_t tokens = fill_with_patches(*content, seen(image), form_, scale_, words_.token);
    PreparedMedia out{content, str(words_.before, words_.token, words_.behind), token_, {}};
    out.runs.emplace_back(static_cast<size_t>(tokens), token_);
    return out;
  }
  const PatchForm& form() const { return form_; }
  const PixelScale& scale() const { return scale_; }
  void use_scale(const PixelScale& scale) { scale_ = scale; }
  Filter filter() const { return filter_; }

 private:
  PatchForm form_;
  PixelScale scale_;
  Filter filter_;
  Words words_;
  int32_t token_;
};

}  // namespace apus
