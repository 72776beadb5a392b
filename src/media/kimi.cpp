// SPDX-License-Identifier: Apache-2.0
// Kimi-VL: a picture in its own size, made smaller only where it has too many patches, and filled up with black to
// whole cells.
#include "base/error.h"
#include "media/patched.h"
#include "media/square.h"

namespace apus {

namespace {

// The table of positions that turn has so many.
constexpr int64_t kMostASide = 512;

class KimiProcessor : public PatchedProcessor {
 public:
  explicit KimiProcessor(const MediaCheckpoint& c)
      : PatchedProcessor(
            c,
            {.patch = c.whole("patch_size", "vision_config", "patch_size", 14),
             .merge = merge_of(c.preprocessor),
             .time = 1},
            kClipScale,
            {"<|media_start|>image<|media_content|>", "<|media_pad|>", "<|media_end|>", "media_placeholder_token_id"}) {
    const Json& file = c.preprocessor;
    if (!file.is_object()) return;
    require(file.value("pad_input", true), Fault::Model,
            "preprocessor_config.json: pad_input false (pictures are cut to whole patches) is not supported; set it to "
            "true");
    if (file.contains("in_token_limit")) most_patches_ = file["in_token_limit"].get<int64_t>();
    require(most_patches_ > 0, Fault::Model, "preprocessor_config.json: in_token_limit must be above 0");
  }
  ImageSize seen_size(ImageSize size) const override {
    return kimi_size(size, form().patch, most_patches_, kMostASide - form().merge);
  }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    const Image own = PatchedProcessor::seen(image)[0];
    const int64_t cell = form().factor();
    const auto filled = [&](int64_t side) { return (side + cell - 1) / cell * cell; };
    return {laid_on(own, {filled(own.width), filled(own.height)}, 0, 0, {})};
  }

 private:
  static int64_t merge_of(const Json& file) {
    if (!file.is_object() || !file.contains("merge_kernel_size")) return 2;
    const Json& pair = file["merge_kernel_size"];
    require(pair.is_array() && pair.size() == 2 && pair[0].is_number_integer() && pair[0] == pair[1] && pair[0] >= 1 &&
                pair[0] <= 64,
            Fault::Model, "preprocessor_config.json: merge_kernel_size must hold the same number twice");
    return pair[0].get<int64_t>();
  }

  int64_t most_patches_ = 4096;
};

const RegisterMediaFamily kimi({"kimi_vl"},
                               [](const MediaCheckpoint& c) { return std::make_shared<KimiProcessor>(c); });

}  // namespace
}  // namespace apus
