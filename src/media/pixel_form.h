// SPDX-License-Identifier: Apache-2.0
// What preprocessor_config.json says of pixels, read for all families.
#pragma once

#include "media/media_options.h"
#include "media/patches.h"
#include "media/resize.h"
#include "media/sizes.h"

namespace apus {

struct MediaContent;  // media/media_item.h

// image_mean and image_std, or the family's own.
PixelScale pixel_scale(const Json& preprocessor, const PixelScale& usual);
// `resample`: Lanczos, bilinear or bicubic, Pillow's numbers 1, 2 and 3. Fault::Model for others.
Filter pixel_filter(const Json& preprocessor, Filter usual);
// min_pixels and max_pixels (or `size`), then the environment: IMAGE_MAX_TOKEN_NUM counts before MAX_PIXELS. `kind` is
// "IMAGE" or "VIDEO"; tokens are of factor x factor pixels.
SizeLimits size_limits(const Json& preprocessor, const MediaSettings& settings, const std::string& kind,
                       const SizeLimits& usual);
std::string form_text(const PixelScale& scale);

// Numbers, shape, grid and digest of pictures that are cut into patches; how many tokens stand for them. `family`
// begins what the digest is of.
int64_t fill_with_patches(MediaContent& content, const std::vector<Image>& pictures, const PatchForm& form,
                          const PixelScale& scale, const char* family);

// The same of pictures that each have a size of their own: how many tokens stand for each.
std::vector<int64_t> fill_with_pictures(MediaContent& content, const std::vector<Image>& pictures,
                                        const PatchForm& form, const PixelScale& scale, const char* family);

inline constexpr PixelScale kHalfScale{{0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}};
inline constexpr PixelScale kClipScale{{0.48145466, 0.4578275, 0.40821073}, {0.26862954, 0.26130258, 0.27577711}};
inline constexpr PixelScale kImageNetScale{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};

}  // namespace apus
