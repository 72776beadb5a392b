// SPDX-License-Identifier: Apache-2.0
// Kimi-VL and Kimi K2.5: a picture in its own size, made smaller only where it has too many patches, and filled up with
// black to whole cells.
#include "base/error.h"
#include "media/patched.h"
#include "media/square.h"

namespace apus {

namespace {

// The table of positions that turn has so many.
constexpr int64_t kMostASide = 512;

// To whole cells, with black.
Image filled_up(const Image& image, int64_t cell) {
  const auto filled = [&](int64_t side) { return (side + cell - 1) / cell * cell; };
  return laid_on(image, {filled(image.width), filled(image.height)}, 0, 0, {});
}

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
    return {filled_up(PatchedProcessor::seen(image)[0], form().factor())};
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

// Its own files keep what a processor needs in a part of the file; those of transformers do not.
Json k25_settings(const Json& file) {
  if (!file.is_object()) return file;
  return file.value("media_proc_cfg", file);
}

class KimiK25Processor : public PatchedProcessor {
 public:
  explicit KimiK25Processor(const MediaCheckpoint& c)
      : PatchedProcessor(c,
                         {.patch = c.whole("patch_size", "vision_config", "patch_size", 14),
                          .merge = number(c, "merge_kernel_size", "merge_size", 2),
                          .time = 1},
                         kHalfScale,
                         {"<|media_begin|>image<|media_content|>", "<|media_pad|>", "<|media_end|>\n",
                          c.config.contains("image_token_id") ? "image_token_id" : "media_placeholder_token_id"}),
        most_patches_(number(c, "in_patch_limit", "max_patches", 16384)),
        most_a_side_(number(c, "patch_limit_on_one_side", "", 512)) {
    const Json& file = c.preprocessor;
    if (file.is_object() && file.contains("size") && file["size"].is_object())
      most_a_side_ = file["size"].value("max_height", most_a_side_);
    require(most_patches_ > 0 && most_a_side_ > 0 && form().merge > 0 && form().merge <= 64, Fault::Model,
            "preprocessor_config.json: in_patch_limit, patch_limit_on_one_side and merge_kernel_size must be above 0");
  }
  ImageSize seen_size(ImageSize size) const override {
    return kimi_size(size, form().patch, most_patches_, most_a_side_);
  }

 protected:
  std::vector<Image> seen(const Image& image) const override {
    return {filled_up(PatchedProcessor::seen(image)[0], form().factor())};
  }

 private:
  static int64_t number(const MediaCheckpoint& c, const char* theirs, const char* transformers, int64_t otherwise) {
    const Json& file = c.preprocessor;
    for (const char* key : {theirs, transformers})
      if (file.is_object() && file.contains(key) && file[key].is_number_integer()) return file[key].get<int64_t>();
    return otherwise;
  }

  int64_t most_patches_, most_a_side_;
};

std::shared_ptr<const MediaProcessor> make_k25(MediaCheckpoint c) {
  c.preprocessor = k25_settings(c.preprocessor);
  return std::make_shared<KimiK25Processor>(c);
}

const RegisterMediaFamily kimi_k25({"kimi_k25"}, make_k25);
const RegisterMediaFamily kimi({"kimi_vl"},
                               [](const MediaCheckpoint& c) { return std::make_shared<KimiProcessor>(c); });

}  // namespace
}  // namespace apus
