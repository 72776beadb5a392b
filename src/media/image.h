// SPDX-License-Identifier: Apache-2.0
// Pictures from bytes: JPEG, PNG, WebP, BMP and the first frame of a GIF, told apart by what they hold, not by their
// names. Read as Pillow's open(...).convert("RGB") reads them: alpha is dropped, EXIF's rotation is not applied.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace apus {

struct Image {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;  // rows from the top, three bytes a pixel
};

// What a file's header may announce; looked at before memory is taken.
struct ImageLimits {
  int64_t pixels = 178'956'970;  // Pillow's own bound
  int64_t side = 65'535;
};

// "JPEG", "PNG", "WebP", "BMP", "GIF"; "" for all else.
std::string image_format(std::string_view bytes);
std::string image_type(std::string_view bytes);  // "image/png"; empty for bytes of no such format

// Fault::Data for what is no picture, is cut short or breaks a limit.
Image decode_image(std::string_view bytes, const ImageLimits& limits = {});

}  // namespace apus
