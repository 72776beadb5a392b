// SPDX-License-Identifier: Apache-2.0
// Where things are in a row's pictures: <ref-object> and <bbox> in its text become names and boxes in the words of the
// model's family, with the numbers of the row's `objects`.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "base/boxes.h"
#include "base/json.h"
#include "data/rows/row.h"
#include "media/processor.h"

namespace apus {

// As shares of the picture's sides: left, top, right, bottom; a point has its corners in one place.
struct SeenBox {
  size_t image = 0;  // which of the row's
  bool point = false;
  std::array<double, 4> sides{};
  bool clipped = false;  // it reached out of the picture
};

// `sizes`: of the row's images as their files have them. What reaches out of its image is cut there; RowError for what
// lies outside of it.
std::vector<SeenBox> row_boxes(const Row& row, const std::vector<ImageSize>& sizes);

// The box's text. `size`: of its picture.
std::string box_text(const SeenBox& box, ImageSize size, const MediaProcessor& processor);

// The boxes of an answer, in pixels of the picture's file: left, top, right, bottom, within it. What has no area there
// is left out.
std::vector<std::array<int64_t, 4>> pixel_boxes(const std::string& answer, ImageSize size,
                                                const MediaProcessor& processor);

// Puts the names and boxes of a row into its messages. RowError where there are more tags than entries. `remark` is
// told of boxes that were cut.
void put_objects(const Row& row, Json& messages, const std::vector<ImageSize>& sizes, const MediaProcessor& processor,
                 const std::function<void(const std::string&)>& remark = {});

}  // namespace apus
