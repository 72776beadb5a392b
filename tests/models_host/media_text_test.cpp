// SPDX-License-Identifier: Apache-2.0
// Which tokens of a text an image stands at.
#include "models/spec/media_text.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace apus {
namespace {

// Of tiles of 8 x 8 pixels: four patches, which are one token.
SeeingSpec of_tiles() {
  SeeingSpec spec;
  spec.vision.width = 8, spec.vision.tile = 8, spec.vision.patch = 4, spec.vision.merge = 2, spec.vision.channels = 3;
  spec.image_token = spec.video_token = kTokenizersChoice;
  return spec;
}

std::shared_ptr<const MediaContent> tiles(int64_t count) {
  auto content = std::make_shared<MediaContent>();
  content->type = MediaType::Image, content->shape = {count, 3, 8, 8};
  return content;
}

TEST(MediaText, FindsTheImagesTokenThatTheConfigDoesNotName) {
  const std::vector<int32_t> ids = {1, 9, 9, 4, 9, 2, 2};
  const auto items = placed_media(ids, {tiles(2), tiles(1)}, of_tiles());
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0].begin, 1);
  EXPECT_EQ(items[0].length, 2);
  EXPECT_EQ(items[1].begin, 4);
  EXPECT_EQ(items[1].length, 1);
}

TEST(MediaText, RefusesToGuessAmongSeveral) {
  const std::vector<int32_t> ids = {1, 9, 9, 2, 2};
  EXPECT_THROW(placed_media(ids, {tiles(2)}, of_tiles()), Error);
  EXPECT_THROW(placed_media(ids, {tiles(3)}, of_tiles()), Error);
}

}  // namespace
}  // namespace apus
