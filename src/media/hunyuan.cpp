// SPDX-License-Identifier: Apache-2.0
// HunyuanOCR: a picture near its own size, cut into patches; of its tokens one ends each line, and one stands on either
// side of all of them.
#include "media/patched.h"

namespace apus {

namespace {

// Its pictures are resized by a cubic, whatever the file says.
MediaCheckpoint with_cubic(MediaCheckpoint c) {
  if (c.preprocessor.is_object()) c.preprocessor.erase("resample");
  return c;
}

class HunyuanProcessor final : public PatchedProcessor {
 public:
  static constexpr Words kWords{"<｜hy_place▁holder▁no▁100｜>", "<｜hy_place▁holder▁no▁102｜>",
                                "<｜hy_place▁holder▁no▁101｜>", "image_token_id"};
  explicit HunyuanProcessor(const MediaCheckpoint& c)
      : PatchedProcessor(with_cubic(c),
                         {.patch = c.whole("patch_size", "vision_config", "patch_size", 16),
                          .merge = c.whole("merge_size", "vision_config", "spatial_merge_size", 2),
                          .time = 1},
                         kClipScale, kWords),
        limits_(size_limits(c.preprocessor, c.settings, "IMAGE", {form().factor(), 512 * 512, 2048 * 2048})) {}

  ImageSize seen_size(ImageSize size) const override { return smart_size(size, limits_); }

 protected:
  PreparedMedia prepared_image(const Image& image) const override {
    PreparedMedia out = PatchedProcessor::prepared_image(image);
    const int64_t lines = out.content->grid[1] / form().merge;
    std::vector<int32_t>& run = out.runs[0];
    run.resize(run.size() + static_cast<size_t>(lines) + 2, run[0]);
    return out;
  }

 private:
  SizeLimits limits_;
};

const RegisterMediaFamily hunyuan({"hunyuan_vl"},
                                  [](const MediaCheckpoint& c) { return std::make_shared<HunyuanProcessor>(c); });

}  // namespace
}  // namespace apus
