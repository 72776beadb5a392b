// SPDX-License-Identifier: Apache-2.0
// Where things are in a row's pictures: <ref-object> and <bbox> in its text become names and boxes in the words of the
// model's family, with the numbers of the row's `objects`.
#pragma once

#include <array>
#include <vector>

#include "base/json.h"
#include "data/rows/row.h"
#include "media/processor.h"

namespace apus {

// As shares of the picture's sides: left, top, right, bottom; a point has its corners in one place.
struct SeenBox {
  size_t image = 0;  // which of the row's
  bool point = false;
  std::array<double, 4> sides{};
};

// `sizes`: of the row's images as their files have them. RowError for boxes that cannot be.
std::vector<SeenBox> row_boxes(const Row& row, const std::vector<ImageSize>& sizes);

// The box's text. `size`: of its picture.
std::string box_text(const SeenBox& box, ImageSize size, const MediaProcessor& processor);

// Puts the names and boxes of a row into its messages. RowError where there are more tags than entries.
void put_objects(const Row& row, Json& messages, const std::vector<ImageSize>& sizes, const MediaProcessor& processor);

}  // namespace apus
