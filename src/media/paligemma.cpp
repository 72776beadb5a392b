// SPDX-License-Identifier: Apache-2.0
// PaliGemma: a picture as one square, whose tokens stand before the text and are read together with the question.
#include "base/error.h"
#include "media/square.h"

namespace apus {

namespace {

class PaliGemmaProcessor : public MediaProcessor {
 public:
  explicit PaliGemmaProcessor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        square_(c, kHalfScale, Filter::Bicubic, of_tower(c, "image_size", 224)),
        token_(c.token("<image>", "image_token_index")) {
    const int64_t patch = of_tower(c, "patch_size", 14);
    require(patch > 0 && square_.side() >= patch, Fault::Model, "config.json: vision_config: patch_size ", patch,
            " and image_size ", square_.side(), " do not fit together");
    const int64_t side = square_.side() / patch;
    run_.assign(static_cast<size_t>(side * side), token_);
  }
  ImageSize seen_size(ImageSize) const override { return {square_.side(), square_.side()}; }
  std::vector<int32_t> media_tokens() const override { return {token_}; }
  std::string grid_name(MediaType) const override { return ""; }

 protected:
  std::vector<Image> seen(const Image& image) const override { return {square_(image)}; }
  PreparedMedia prepared_image(const Image& image) const override {
    PreparedMedia out{square_.content(seen(image), "paligemma"), "<image>", token_, {run_}};
    out.with_question = true;
    return out;
  }

 private:
  SquareForm square_;
  int32_t token_;
  std::vector<int32_t> run_;
};

const RegisterMediaFamily paligemma({"paligemma"},
                                    [](const MediaCheckpoint& c) { return std::make_shared<PaliGemmaProcessor>(c); });

}  // namespace
}  // namespace apus
