// SPDX-License-Identifier: Apache-2.0
// Boxes in pictures, as models write them in their answers.
#pragma once

#include <array>
#include <string_view>
#include <vector>

namespace apus {

using Box = std::array<double, 4>;  // left, top, right, bottom

// Every four numbers of a text that stand together in brackets, and every two pairs: [1, 2, 3, 4], ((1,2),(3,4)),
// "bbox_2d": [1, 2, 3, 4]. Said with corners swapped, they are put in order.
std::vector<Box> said_boxes(std::string_view text);

// The shared area as a part of both together.
double overlap(const Box& a, const Box& b);

// Boxes are paired, those that overlap most first, each with one; the pairs' overlaps as a part of the longer list.
double overlap(const std::vector<Box>& said, const std::vector<Box>& wanted);

}  // namespace apus
