// SPDX-License-Identifier: Apache-2.0
// What another program's processor made of images, videos and sounds: a safetensors file with transformers' names.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "media/media_item.h"
#include "models/spec/seeing_spec.h"

namespace apus {

// pixel_values with image_grid_thw, pixel_values_videos with video_grid_thw and second_per_grid_ts (or
// video_second_per_grid), input_features with feature_attention_mask. Images come first, then videos, each kind in its
// order. Fault::Data naming file and tensor.
std::vector<std::shared_ptr<const MediaContent>> read_processed_media(const std::filesystem::path& file,
                                                                      const SeeingSpec& spec);

}  // namespace apus
