// SPDX-License-Identifier: Apache-2.0
#include "base/png.h"

#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "base/error.h"

namespace apus {
namespace {

// Seven rows of five dots.
const std::map<char, std::array<uint8_t, 7>>& glyphs() {
  static const std::map<char, std::array<uint8_t, 7>> all = {
      {'a', {0x00, 0x00, 0x0E, 0x01, 0x0F, 0x11, 0x0F}}, {'b', {0x10, 0x10, 0x1E, 0x11, 0x11, 0x11, 0x1E}},
      {'c', {0x00, 0x00, 0x0E, 0x10, 0x10, 0x11, 0x0E}}, {'d', {0x01, 0x01, 0x0F, 0x11, 0x11, 0x11, 0x0F}},
      {'e', {0x00, 0x00, 0x0E, 0x11, 0x1F, 0x10, 0x0E}}, {'f', {0x06, 0x09, 0x08, 0x1C, 0x08, 0x08, 0x08}},
      {'g', {0x00, 0x0F, 0x11, 0x11, 0x0F, 0x01, 0x0E}}, {'h', {0x10, 0x10, 0x16, 0x19, 0x11, 0x11, 0x11}},
      {'i', {0x04, 0x00, 0x0C, 0x04, 0x04, 0x04, 0x0E}}, {'j', {0x02, 0x00, 0x06, 0x02, 0x02, 0x12, 0x0C}},
      {'k', {0x10, 0x10, 0x12, 0x14, 0x18, 0x14, 0x12}}, {'l', {0x0C, 0x04, 0x04, 0x04, 0x04, 0x04, 0x0E}},
      {'m', {0x00, 0x00, 0x1A, 0x15, 0x15, 0x11, 0x11}}, {'n', {0x00, 0x00, 0x16, 0x19, 0x11, 0x11, 0x11}},
      {'o', {0x00, 0x00, 0x0E, 0x11, 0x11, 0x11, 0x0E}}, {'p', {0x00, 0x00, 0x1E, 0x11, 0x1E, 0x10, 0x10}},
      {'q', {0x00, 0x00, 0x0D, 0x13, 0x0F, 0x01, 0x01}}, {'r', {0x00, 0x00, 0x16, 0x19, 0x10, 0x10, 0x10}},
      {'s', {0x00, 0x00, 0x0E, 0x10, 0x0E, 0x01, 0x1E}}, {'t', {0x08, 0x08, 0x1C, 0x08, 0x08, 0x09, 0x06}},
      {'u', {0x00, 0x00, 0x11, 0x11, 0x11, 0x13, 0x0D}}, {'v', {0x00, 0x00, 0x11, 0x11, 0x11, 0x0A, 0x04}},
      {'w', {0x00, 0x00, 0x11, 0x11, 0x15, 0x15, 0x0A}}, {'x', {0x00, 0x00, 0x11, 0x0A, 0x04, 0x0A, 0x11}},
      {'y', {0x00, 0x00, 0x11, 0x11, 0x0F, 0x01, 0x0E}}, {'z', {0x00, 0x00, 0x1F, 0x02, 0x04, 0x08, 0x1F}},
      {'0', {0x0E, 0x11, 0x13, 0x15, 0x19, 0x11, 0x0E}}, {'1', {0x04, 0x0C, 0x04, 0x04, 0x04, 0x04, 0x0E}},
      {'2', {0x0E, 0x11, 0x01, 0x02, 0x04, 0x08, 0x1F}}, {'3', {0x1F, 0x02, 0x04, 0x02, 0x01, 0x11, 0x0E}},
      {'4', {0x02, 0x06, 0x0A, 0x12, 0x1F, 0x02, 0x02}}, {'5', {0x1F, 0x10, 0x1E, 0x01, 0x01, 0x11, 0x0E}},
      {'6', {0x06, 0x08, 0x10, 0x1E, 0x11, 0x11, 0x0E}}, {'7', {0x1F, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08}},
      {'8', {0x0E, 0x11, 0x11, 0x0E, 0x11, 0x11, 0x0E}}, {'9', {0x0E, 0x11, 0x11, 0x0F, 0x01, 0x02, 0x0C}},
      {'.', {0x00, 0x00, 0x00, 0x00, 0x00, 0x0C, 0x0C}}, {'-', {0x00, 0x00, 0x00, 0x1F, 0x00, 0x00, 0x00}},
      {'+', {0x00, 0x04, 0x04, 0x1F, 0x04, 0x04, 0x00}}, {'/', {0x00, 0x01, 0x02, 0x04, 0x08, 0x10, 0x00}},
      {'_', {0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x1F}}, {'(', {0x02, 0x04, 0x08, 0x08, 0x08, 0x04, 0x02}},
      {')', {0x08, 0x04, 0x02, 0x02, 0x02, 0x04, 0x08}}, {'%', {0x18, 0x19, 0x02, 0x04, 0x08, 0x13, 0x03}},
      {':', {0x00, 0x0C, 0x0C, 0x00, 0x0C, 0x0C, 0x00}}};
  return all;
}

std::string four_bytes(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string chunk(const std::string& kind, const std::string& data) {
  const std::string body = kind + data;
  const auto sum = ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return four_bytes(static_cast<uint32_t>(data.size())) + body + four_bytes(static_cast<uint32_t>(sum));
}

}  // namespace

void Picture::dot(int x, int y, Rgb color, double cover) {
  if (x < 0 || y < 0 || x >= width_ || y >= height_) return;
  uint8_t* const pixel = &pixels_[3 * (static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x))];
  for (size_t c = 0; c < 3; ++c)
    pixel[c] = static_cast<uint8_t>(std::lround(pixel[c] + (color[c] - pixel[c]) * std::clamp(cover, 0.0, 1.0)));
}

void Picture::box(int x, int y, int width, int height, Rgb color) {
  for (int row = 0; row < height; ++row)
    for (int column = 0; column < width; ++column) dot(x + column, y + row, color);
}

// Every pixel near it is covered by how near its middle is.
void Picture::line(double x1, double y1, double x2, double y2, Rgb color, double width) {
  const double dx = x2 - x1, dy = y2 - y1, squared = dx * dx + dy * dy, reach = width / 2 + 1;
  const auto low = [&](double a, double b) { return static_cast<int>(std::floor(std::min(a, b) - reach)); };
  const auto high = [&](double a, double b) { return static_cast<int>(std::ceil(std::max(a, b) + reach)); };
  for (int y = std::max(0, low(y1, y2)); y <= std::min(height_ - 1, high(y1, y2)); ++y)
    for (int x = std::max(0, low(x1, x2)); x <= std::min(width_ - 1, high(x1, x2)); ++x) {
      const double along = squared > 0 ? std::clamp(((x - x1) * dx + (y - y1) * dy) / squared, 0.0, 1.0) : 0;
      const double away = std::hypot(x - (x1 + along * dx), y - (y1 + along * dy));
      if (const double cover = width / 2 + 0.5 - away; cover > 0) dot(x, y, color, cover);
    }
}

void Picture::text(int x, int y, std::string_view words, Rgb color, int scale) {
  for (const char c : words) {
    const auto found = glyphs().find(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    if (found != glyphs().end())
      for (int row = 0; row < 7; ++row)
        for (int column = 0; column < 5; ++column)
          if (found->second[static_cast<size_t>(row)] >> (4 - column) & 1)
            box(x + column * scale, y + row * scale, scale, scale, color);
    x += 6 * scale;
  }
}

Rgb Picture::at(int x, int y) const {
  const size_t pixel = 3 * (static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x));
  return {pixels_.at(pixel), pixels_.at(pixel + 1), pixels_.at(pixel + 2)};
}

std::string Picture::png() const {
  std::string rows;
  const size_t row = 3 * static_cast<size_t>(width_);
  for (size_t y = 0; y < static_cast<size_t>(height_); ++y) {
    rows += '\0';  // as it is, no prediction
    rows.append(reinterpret_cast<const char*>(&pixels_[y * row]), row);
  }
  std::string packed(::compressBound(static_cast<uLong>(rows.size())), '\0');
  auto size = static_cast<uLongf>(packed.size());
  const int code = ::compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                               reinterpret_cast<const Bytef*>(rows.data()), static_cast<uLong>(rows.size()), 9);
  require(code == Z_OK, Fault::Bug, "zlib: ", code);
  packed.resize(size);
  const std::string head = four_bytes(static_cast<uint32_t>(width_)) + four_bytes(static_cast<uint32_t>(height_)) +
                           std::string("\x08\x02\x00\x00\x00", 5);  // 8 bits, colors
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", head) + chunk("IDAT", packed) + chunk("IEND", "");
}

}  // namespace apus
