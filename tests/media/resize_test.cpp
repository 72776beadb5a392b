// SPDX-License-Identifier: Apache-2.0
#include "media/resize.h"

#include <gtest/gtest.h>

#include "tests/media/golden_numbers.h"

namespace apus {
namespace {

TEST(Resize, EqualsPillowByteForByte) {
  const test::ProcessorNumbers golden;
  size_t seen = 0;
  for (const std::string family : {"qwen2_vl", "qwen3_vl"})
    for (const std::string number : {"0", "1", "2"}) {
      const std::string name = family + "/" + number;
      if (!golden.has(name + "/resized_u8_hwc")) continue;
      const Image wanted = golden.image(name + "/resized_u8_hwc");
      const Image got = resized(golden.image(name + "/image_u8_hwc"), wanted.width, wanted.height, Filter::Bicubic);
      EXPECT_EQ(got.rgb, wanted.rgb) << name;
      ++seen;
    }
  EXPECT_GE(seen, 3u);
}

TEST(Resize, InFloatsStaysNearPillow) {
  const test::ProcessorNumbers golden;
  const Image image = golden.image("qwen2_vl/2/image_u8_hwc");  // made smaller: without clamped overshoots
  const Image fixed = resized(image, 56, 84, Filter::Bicubic),
              floats = resized_in_floats(image, 56, 84, Filter::Bicubic);
  int worst = 0;
  for (size_t i = 0; i < fixed.rgb.size(); ++i) worst = std::max(worst, std::abs(fixed.rgb[i] - floats.rgb[i]));
  EXPECT_LE(worst, 2);
}

TEST(Resize, KeepsAnEvenColour) {
  Image grey{7, 5, std::vector<uint8_t>(7 * 5 * 3, 93)};
  for (const Filter filter : {Filter::Bilinear, Filter::Bicubic})
    for (const int64_t side : {1, 4, 33})
      for (const uint8_t value : resized(grey, side, 2 * side, filter).rgb) ASSERT_EQ(value, 93);
}

}  // namespace
}  // namespace apus
