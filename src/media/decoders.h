// SPDX-License-Identifier: Apache-2.0
// The decoders of image.h, a file each. They are given bytes that begin as their format does.
#pragma once

#include <string_view>

#include "media/image.h"

namespace apus {

Image decode_jpeg(std::string_view bytes, const ImageLimits& limits);
Image decode_png(std::string_view bytes, const ImageLimits& limits);
Image decode_webp(std::string_view bytes, const ImageLimits& limits);
Image decode_bmp(std::string_view bytes, const ImageLimits& limits);
Image decode_gif(std::string_view bytes, const ImageLimits& limits);
Image decode_tiff(std::string_view bytes, const ImageLimits& limits);

// An image of this size, black; Fault::Data for sides of zero and sizes beyond the limits.
Image blank_image(int64_t width, int64_t height, const ImageLimits& limits);

}  // namespace apus
