// SPDX-License-Identifier: Apache-2.0
// The images, videos and sounds of the golden files' batches, each with its tokens in its row.
#pragma once

#include "models/processed_media.h"
#include "models/seeing_decoder.h"
#include "nn/inputs.h"
#include "tests/folder.h"
#include "tests/models/golden_batch.h"

namespace apus::golden {

// A safetensors file of a processor's tensors of one case, as other programs write it.
inline void write_media(const Case& c, const std::string& which, const std::filesystem::path& file) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const char* name : {"pixel_values",        "image_grid_thw",
                           "pixel_values_videos", "video_grid_thw",
                           "second_per_grid_ts",  "video_second_per_grid",
                           "input_features",      "feature_attention_mask",
                           "input_features_mask", "grid_thws",
                           "image_sizes",         "image_position_ids",
                           "video_position_ids",  "num_frames_per_video",
                           "spatial_shapes",      "pixel_attention_mask",
                           "pixel_values_local",  "num_local_patches",
                           "patches_grid",        "image_token_pooling",
                           "image_grids",         "image_num_crops",
                           "video_token_pooling", "video_grids",
                           "aspect_ratio_ids",    "aspect_ratio_mask"})
    if (c.has(which + "/" + name)) tensors.emplace_back(name, c.tensor(which + "/" + name).contiguous());
  write_safetensors(file, tensors);
}

inline std::vector<std::shared_ptr<const MediaContent>> contents_of(const Case& c, const std::string& which,
                                                                    const SeeingSpec& spec) {
  const test::Folder folder;
  write_media(c, which, folder.path / "media.safetensors");
  return read_processed_media(folder.path / "media.safetensors", spec);
}

// `which`: the case of the ids; `pixels`: that of the pixels, which stand in the rows' order.
inline Inputs::Media media_of(const Case& c, const Packed& p, const std::string& pixels, const SeeingSpec& spec) {
  const auto contents = contents_of(c, pixels, spec);
  Inputs::Media media;
  std::vector<bool> used(contents.size());
  for (const auto& row : p.ids) {
    const std::vector<int32_t> ids(row.begin(), row.end());
    std::vector<std::shared_ptr<const MediaContent>> own;
    for (const MediaType type : {MediaType::Image, MediaType::Video, MediaType::Audio}) {
      const bool shared = spec.video_token == spec.image_token;
      if (type == MediaType::Video && shared) continue;
      int64_t left = std::count(row.begin(), row.end(), token_of(type, spec));
      for (size_t i = 0; i < contents.size() && left > 0; ++i)
        if (!used[i] && (contents[i]->type == type || (shared && contents[i]->type == MediaType::Video)))
          own.push_back(contents[i]), used[i] = true, left -= tokens_for(*contents[i], spec);
    }
    media.push_back(placed_media(ids, own, spec));
  }
  EXPECT_TRUE(std::all_of(used.begin(), used.end(), [](bool u) { return u; })) << "media without a row";
  return media;
}

}  // namespace apus::golden
