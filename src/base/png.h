// SPDX-License-Identifier: Apache-2.0
// A picture in memory, drawn with lines and small letters, and written as PNG.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace apus {

using Rgb = std::array<uint8_t, 3>;

class Picture {
 public:
  Picture(int width, int height, Rgb back) : width_(width), height_(height) {
    for (int i = 0; i < width * height; ++i) pixels_.insert(pixels_.end(), back.begin(), back.end());
  }
  Picture(int width, int height, std::vector<uint8_t> rows_of_rgb)
      : width_(width), height_(height), pixels_(std::move(rows_of_rgb)) {}
  void dot(int x, int y, Rgb color, double cover = 1);  // outside of the picture: nothing
  void box(int x, int y, int width, int height, Rgb color);
  void line(double x1, double y1, double x2, double y2, Rgb color, double width = 1);
  // From its upper left corner; letters are 5 x 7 dots, `scale` pixels each, 6 apart. Capitals are drawn small.
  void text(int x, int y, std::string_view words, Rgb color, int scale = 1);
  static int text_width(std::string_view words, int scale = 1) { return static_cast<int>(words.size()) * 6 * scale; }
  Rgb at(int x, int y) const;
  std::string png() const;

 private:
  int width_, height_;
  std::vector<uint8_t> pixels_;  // rows of three bytes
};

}  // namespace apus
