// SPDX-License-Identifier: Apache-2.0
// Pictures in another size, as the processors of checkpoints make them.
#pragma once

#include "media/image.h"

namespace apus {

enum class Filter { Bilinear, Bicubic, Lanczos };

// Bit for bit as Pillow's Image.resize: weights of 22 fractional bits, columns first, bytes between the two passes.
Image resized(const Image& image, int64_t width, int64_t height, Filter filter);

// Bit for bit as torchvision's resize with antialias of bytes on a processor: the same with weights of 16 bits.
Image resized_as_torch(const Image& image, int64_t width, int64_t height, Filter filter);

// As torchvision's resize with antialias on bytes: the same filter in floats, rounded once at the end. Frames of videos
// are resized in this way.
Image resized_in_floats(const Image& image, int64_t width, int64_t height, Filter filter);
// The same without rounding: [height, width, 3], from 0 to 255 (bicubic and Lanczos reach a little beyond).
std::vector<float> floats_resized(const Image& image, int64_t width, int64_t height, Filter filter);

// As torchvision's bilinear resize without antialias: of the four pixels around each place, rounded once.
Image resized_between(const Image& image, int64_t width, int64_t height);

// Planes of numbers [3, height, width] as [3, side, side], by torch's bicubic without antialias.
std::vector<float> planes_in_square(const std::vector<float>& planes, int64_t height, int64_t width, int64_t side);

Image cropped(const Image& image, int64_t left, int64_t top, int64_t width, int64_t height);
// Parts of this size, of which the whole consists, line by line.
void add_tiles(const Image& whole, int64_t width, int64_t height, std::vector<Image>& out);

}  // namespace apus
