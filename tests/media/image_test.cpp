// SPDX-License-Identifier: Apache-2.0
#include "media/image.h"

#include <gtest/gtest.h>

#include "base/digest.h"
#include "base/files.h"
#include "base/json.h"
#include "tests/paths.h"
#include "tests/refusal.h"

namespace apus {
namespace {

std::string picture_file(const std::string& name) {
  return read_file(test::source_dir() / "tests/data/media/pictures" / name);
}

std::string bytes_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// The digests are of what Pillow reads in the same files; of 16 bits the high byte counts.
TEST(Images, AreReadAsPillowReadsThem) {
  const Json wanted = parse_json(read_file(test::source_dir() / "tests/data/media/pictures.json"), "pictures.json");
  for (const auto& [name, entry] : wanted.items()) {
    const Image image = decode_image(picture_file(name));
    EXPECT_EQ(image.width, entry[0].get<int64_t>()) << name;
    EXPECT_EQ(image.height, entry[1].get<int64_t>()) << name;
    EXPECT_EQ(hex_digest(bytes_of(image.rgb), 8), entry[2].get<std::string>()) << name;
  }
  EXPECT_GE(wanted.size(), 24u);
}

TEST(Images, CutShortAreErrors) {
  for (const std::string name : {"plain.jpg", "progressive.jpg", "plain.png", "plain.webp", "plain.bmp", "palette.bmp",
                                 "plain.gif", "woven.gif", "moving.webp"}) {
    const std::string whole = picture_file(name);
    for (const double share : {0.3, 0.6, 0.9}) {
      const auto size = static_cast<size_t>(share * static_cast<double>(whole.size()));
      test::refusal(Fault::Data, [&] { decode_image(whole.substr(0, size)); });
    }
  }
}

TEST(Images, HugeOnesAreRefusedBeforeMemoryIsTaken) {
  std::string bmp = picture_file("plain.bmp");
  for (const size_t at : {18u, 22u}) bmp[at] = 0, bmp[at + 1] = 0, bmp[at + 2] = 1;  // 65536 x 65536
  test::expect_says(test::refusal(Fault::Data, [&] { decode_image(bmp); }), "65536 x 65536");
  const ImageLimits small{.pixels = 100, .side = 4000};
  for (const std::string name : {"plain.jpg", "plain.png", "plain.webp", "plain.bmp", "plain.gif"})
    test::expect_says(test::refusal(Fault::Data, [&] { decode_image(picture_file(name), small); }), "37 x 29");
}

TEST(Images, WhatIsNoPictureIsNamed) {
  const auto says = [](std::string_view bytes, const std::string& part) {
    test::expect_says(test::refusal(Fault::Data, [&] { decode_image(bytes); }), part);
  };
  says("", "an empty file");
  says("hello, this is text", "no picture; JPEG, PNG, WebP, BMP, GIF and TIFF are read");
  says(std::string_view("II*\0abcdefgh", 12), "a truncated TIFF file");
  says("<!DOCTYPE html><html>", "a web page");
  says(std::string_view("\0\0\0\x18"
                        "ftypmp42",
                        12),
       "a video file");
  says(std::string_view("\0\0\0\x18"
                        "ftypheic",
                        12),
       "a HEIC picture");
}

}  // namespace
}  // namespace apus
