// SPDX-License-Identifier: Apache-2.0
// Pictures as others read them: the chunks of PNG with their sums, and the pixels that were drawn.
#include "base/png.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "base/plot.h"

namespace apus {
namespace {

struct ReadPng {
  uint32_t width = 0, height = 0;
  std::vector<uint8_t> pixels;
};

uint32_t number_in(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

ReadPng read_png(const std::string& bytes) {
  ReadPng out;
  EXPECT_EQ(bytes.substr(0, 8), "\x89PNG\r\n\x1a\n");
  std::string packed;
  for (size_t at = 8; at + 12 <= bytes.size();) {
    const uint32_t size = number_in(bytes, at);
    const std::string kind = bytes.substr(at + 4, 4), data = bytes.substr(at + 8, size), body = kind + data;
    EXPECT_EQ(number_in(bytes, at + 8 + size),
              ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size())))
        << kind;
    if (kind == "IHDR") {
      out.width = number_in(data, 0), out.height = number_in(data, 4);
      EXPECT_EQ(data.substr(8), std::string("\x08\x02\x00\x00\x00", 5));
    }
    if (kind == "IDAT") packed += data;
    at += 12 + size;
  }
  const size_t row = 3 * out.width + 1;
  std::string rows(row * out.height, '\0');
  auto size = static_cast<uLongf>(rows.size());
  EXPECT_EQ(::uncompress(reinterpret_cast<Bytef*>(rows.data()), &size, reinterpret_cast<const Bytef*>(packed.data()),
                         static_cast<uLong>(packed.size())),
            Z_OK);
  EXPECT_EQ(size, rows.size());
  for (size_t y = 0; y < out.height; ++y) {
    EXPECT_EQ(rows[y * row], 0);
    out.pixels.insert(out.pixels.end(), rows.begin() + static_cast<long>(y * row + 1),
                      rows.begin() + static_cast<long>((y + 1) * row));
  }
  return out;
}

TEST(Png, HoldsWhatWasDrawn) {
  Picture picture(20, 10, Rgb{255, 255, 255});
  picture.box(2, 3, 4, 2, {255, 0, 0});
  picture.line(0, 9, 19, 9, {0, 0, 255});
  picture.text(10, 0, "l", {0, 0, 0});
  picture.dot(-1, 5, {0, 0, 0});
  picture.dot(20, 10, {0, 0, 0});
  const ReadPng read = read_png(picture.png());
  ASSERT_EQ(read.width, 20u);
  ASSERT_EQ(read.height, 10u);
  const auto at = [&](size_t x, size_t y) {
    const size_t i = 3 * (y * 20 + x);
    return Rgb{read.pixels[i], read.pixels[i + 1], read.pixels[i + 2]};
  };
  EXPECT_EQ(at(2, 3), (Rgb{255, 0, 0}));
  EXPECT_EQ(at(5, 4), (Rgb{255, 0, 0}));
  EXPECT_EQ(at(6, 4), (Rgb{255, 255, 255}));
  EXPECT_EQ(at(7, 9), (Rgb{0, 0, 255}));
  EXPECT_EQ(at(12, 3), (Rgb{0, 0, 0})) << "the stem of the letter";
  EXPECT_EQ(picture.at(12, 3), at(12, 3));
}

TEST(Png, APlotShowsItsCurve) {
  const ReadPng read = read_png(plot_png("train/loss", "step", {{"value", {{0, 1}, {10, 0}}, "#FF0000"}}));
  ASSERT_EQ(read.width, 800u);
  ASSERT_EQ(read.height, 500u);
  size_t red = 0;
  for (size_t i = 0; i < read.pixels.size(); i += 3)
    red += read.pixels[i] == 255 && read.pixels[i + 1] < 60 && read.pixels[i + 2] < 60;
  EXPECT_GT(red, 600u) << "from one corner to the other";
}

}  // namespace
}  // namespace apus
