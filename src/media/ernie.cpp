// SPDX-License-Identifier: Apache-2.0
// ERNIE 4.5 VL: a picture near its own size, cut into patches, behind its number. Its videos have their times drawn on
// their frames in a font of their own, and are not read.
#include "media/patched.h"

namespace apus {

namespace {

class ErnieProcessor final : public PatchedProcessor {
 public:
  ErnieProcessor(const MediaCheckpoint& c, const char* key)
      : PatchedProcessor(c,
                         {.patch = c.whole("patch_size", "vision_config", "patch_size", 14),
                          .merge = c.whole("merge_size", "vision_config", "spatial_merge_size", 2),
                          .time = 1},
                         kClipScale, {"<|IMAGE_START|>", "<|IMAGE_PLACEHOLDER|>", "<|IMAGE_END|>", key}),
        limits_(size_limits(c.preprocessor, c.settings, "IMAGE", {form().factor(), 56 * 56, 28 * 28 * 6177})) {}

  ImageSize seen_size(ImageSize size) const override { return smart_size(size, limits_); }
  std::string counted(const std::string& text, size_t number) const override {
    return str("Picture ", number + 1, ":", text);
  }

 protected:
  PreparedMedia prepared_video(const VideoFrames&) const override {
    fail(
        Fault::Data,
        "this model's videos have their times drawn on the frames, which is not done here; give some frames as images");
  }

 private:
  SizeLimits limits_;
};

MakeMediaProcessor ernie(const char* key) {
  return [key](const MediaCheckpoint& c) { return std::make_shared<ErnieProcessor>(c, key); };
}

const RegisterMediaFamily as_transformers_has_it({"ernie4_5_vl_moe"}, ernie("image_token_id"));
const RegisterMediaFamily as_its_authors_do({"ernie4_5_moe_vl"}, ernie("im_patch_id"));

}  // namespace
}  // namespace apus
