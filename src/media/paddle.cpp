// SPDX-License-Identifier: Apache-2.0
// PaddleOCR-VL and Keye-VL: a picture near its own size, cut into patches.
#include <cmath>

#include "base/error.h"
#include "media/patched.h"

namespace apus {

namespace {

class PaddleProcessor : public PatchedProcessor {
 public:
  PaddleProcessor(const MediaCheckpoint& c, const Words& words, int64_t fewest_pixels, int64_t most_pixels)
      : PatchedProcessor(c,
                         {.patch = c.whole("patch_size", "vision_config", "patch_size", 14),
                          .merge = c.whole("merge_size", "vision_config", "spatial_merge_size", 2),
                          .time = 1},
                         kClipScale, words),
        limits_(size_limits(c.preprocessor, c.settings, "IMAGE", {form().factor(), fewest_pixels, most_pixels})) {}

  // What is smaller than a cell grows with its shape first.
  ImageSize seen_size(ImageSize size) const override {
    require(size.width > 0 && size.height > 0, Fault::Data, "an image of ", size.width, " x ", size.height, " pixels");
    const auto grow = [&](int64_t& small, int64_t& other) {
      if (small >= limits_.factor) return;
      other = static_cast<int64_t>(
          std::nearbyint(static_cast<double>(other * limits_.factor) / static_cast<double>(small)));
      small = limits_.factor;
    };
    grow(size.height, size.width);
    grow(size.width, size.height);
    return smart_size(size, limits_);
  }

 private:
  SizeLimits limits_;
};

const RegisterMediaFamily paddle({"paddleocr_vl"}, [](const MediaCheckpoint& c) {
  const PatchedProcessor::Words words{"<|IMAGE_START|>", "<|IMAGE_PLACEHOLDER|>", "<|IMAGE_END|>", "image_token_id"};
  return std::make_shared<PaddleProcessor>(c, words, 384 * 384, 1536 * 1536);
});
const RegisterMediaFamily keye({"Keye", "KeyeVL1_5"}, [](const MediaCheckpoint& c) {
  const PatchedProcessor::Words words{"<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "image_token_id"};
  return std::make_shared<PaddleProcessor>(c, words, 56 * 56, 1280 * 28 * 28);
});

}  // namespace
}  // namespace apus
