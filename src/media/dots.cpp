// SPDX-License-Identifier: Apache-2.0
// dots.ocr: a page near its own size, cut into patches.
#include "media/patched.h"

namespace apus {

namespace {

class DotsProcessor : public PatchedProcessor {
 public:
  explicit DotsProcessor(const MediaCheckpoint& c)
      : PatchedProcessor(c,
                         {.patch = c.whole("patch_size", "vision_config", "patch_size", 14),
                          .merge = c.whole("merge_size", "vision_config", "spatial_merge_size", 2),
                          .time = 1},
                         kClipScale, {"<|img|>", "<|imgpad|>", "<|endofimg|>", "image_token_id"}),
        limits_(size_limits(c.preprocessor, c.settings, "IMAGE", {form().factor(), 56 * 56, 11'289'600})) {}

  ImageSize seen_size(ImageSize size) const override { return smart_size(size, limits_); }

 private:
  SizeLimits limits_;
};

const RegisterMediaFamily dots({"dots_ocr"},
                               [](const MediaCheckpoint& c) { return std::make_shared<DotsProcessor>(c); });

}  // namespace
}  // namespace apus
