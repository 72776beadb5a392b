// SPDX-License-Identifier: Apache-2.0
// Reads lines "FILE WIDTH HEIGHT FILTER" and writes of each its picture in that size: width, height (four bytes each,
// zeros where it cannot be read) and colours. For pillow_check.py.
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "media/image.h"
#include "media/resize.h"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string file, filter;
    int64_t width = 0, height = 0;
    words >> file >> width >> height >> filter;
    apus::Image image;
    try {
      image = apus::decode_image(apus::read_file(file));
      if (width > 0)
        image =
            apus::resized(image, width, height, filter == "bilinear" ? apus::Filter::Bilinear : apus::Filter::Bicubic);
    } catch (const apus::Error& error) {
      std::cerr << file << ": " << error.what() << "\n";
      image = {};
    }
    const uint32_t size[2] = {static_cast<uint32_t>(image.width), static_cast<uint32_t>(image.height)};
    std::fwrite(size, sizeof size, 1, stdout);
    std::fwrite(image.rgb.data(), 1, image.rgb.size(), stdout);
  }
}
