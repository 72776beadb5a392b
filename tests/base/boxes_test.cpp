// SPDX-License-Identifier: Apache-2.0
#include "base/boxes.h"

#include <gtest/gtest.h>

#include <string>

namespace apus {
namespace {

using Boxes = std::vector<Box>;

TEST(Boxes, AsFamiliesWriteThem) {
  const Boxes one = {{1, 2, 30, 40}};
  EXPECT_EQ(said_boxes("<|box_start|>(1,2),(30,40)<|box_end|>"), one);
  EXPECT_EQ(said_boxes("[(1,2),(30,40)]"), one);
  EXPECT_EQ(said_boxes("<box>[[1, 2, 30, 40]]</box>"), one);
  EXPECT_EQ(said_boxes("```json\n[{\"bbox_2d\": [1, 2, 30, 40], \"label\": \"a cat (2)\"}]\n```"), one);
  EXPECT_EQ(said_boxes("<|begin_of_box|>[[1,2,30,40]]<|end_of_box|>"), one);
  EXPECT_EQ(said_boxes("[0.5, -2, 3e1, 40]"), (Boxes{{0.5, -2, 30, 40}}));
  EXPECT_EQ(said_boxes("[[1,2,30,40],[5,6,7,8]] and (1, 1), (2, 2)"),
            (Boxes{{1, 2, 30, 40}, {5, 6, 7, 8}, {1, 1, 2, 2}}));
}

TEST(Boxes, WhatIsNone) {
  for (const char* text : {"", "[", "[1,2,3", "[1,2,3]", "[1,2,3,4,5]", "(1,2) and (3,4)", "[a,1,2,3]", "1, 2, 3, 4",
                           "[nan,1,2,3]", "(1,2,3,4]", "[1,2,3,inf]"})
    EXPECT_TRUE(said_boxes(text).empty()) << text;
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "[1,2,3,4]";
  EXPECT_EQ(said_boxes(many).size(), 1000u);
}

TEST(Boxes, ShareAPartOfTheirArea) {
  EXPECT_EQ(overlap(Box{0, 0, 2, 2}, Box{1, 1, 3, 3}), 1.0 / 7);
  EXPECT_EQ(overlap(Box{0, 0, 2, 2}, Box{2, 0, 4, 2}), 0);
  EXPECT_EQ(overlap(Box{1, 1, 1, 1}, Box{1, 1, 1, 1}), 0);  // a point has no area
  // Each with one: the second one's best is taken.
  EXPECT_EQ(overlap(Boxes{{0, 0, 2, 2}, {0, 0, 2, 2}}, Boxes{{0, 0, 2, 2}, {1, 1, 3, 3}}), (1 + 1.0 / 7) / 2);
}

}  // namespace
}  // namespace apus
