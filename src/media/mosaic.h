// SPDX-License-Identifier: Apache-2.0
// Llava's pictures of high resolution: all of it in one square, and once more, larger, in a grid of squares. Of what a
// tower makes of the grid the rows beyond the picture's edges are left out, and a row of its own ends each line.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/json.h"
#include "media/sizes.h"

namespace apus {

struct MosaicForm {
  std::vector<ImageSize> sizes;  // that the larger picture may have, edges filled up; multiples of the squares' side
  int64_t side = 336;            // of a square, in pixels
  int64_t cells = 24;            // of a square's side
  // Above 0: a grid of more cells than so many squares have is made smaller.
  int64_t most_squares = 0;
  // Of a video's frame, which is one square: two by two of its cells become one. With frames_pooled they do so before
  // the merger and nothing stands behind the frames; else a row of its own does.
  bool frames_pooled = false;
  // The larger picture is as large as its squares; every line of it and of the square of all of it ends in a row, and a
  // row of its own stands between the two. And: the larger one comes first.
  bool in_lines = false, whole_last = false;
  // Above 0: what fills up the squares of the larger picture at its right and lower edges is left out, in whole patches
  // of so many pixels, and its size is that of the rest. 2 x 2 patches are a cell.
  int64_t cut_patch = 0;
  // How much of a grid a picture fills is cut to whole cells as the number comes; else one that is whole but for its
  // last bits is that number.
  bool cut_as_it_comes = false;
  int64_t frame_side() const { return frames_pooled ? cells / 2 : (cells + 1) / 2; }
  int64_t video_rows(int64_t frames) const { return frames * frame_side() * frame_side() + (frames_pooled ? 0 : 1); }
};

// image_grid_pinpoints of config.json, and vision_aspect_ratio of Llava OneVision, for squares of `side` pixels.
MosaicForm read_mosaic(const Json& config, int64_t side, int64_t cells);
// What stands for a picture's rows in a text of Llava's own files; no tokenizer knows it.
inline constexpr int32_t kOwnLlavaImage = -200;
// As read_mosaic, of Llava's own files, which have sizes as [width, height].
MosaicForm read_own_mosaic(const Json& config, int64_t side, int64_t cells);
// Of a config.json that calls itself deepseek_vl_v2, as DeepSeek-OCR's do: whether it is DeepSeek-VL2's, whose tower
// has one width.
bool is_deepseek_vl2(const Json& config);
// DeepSeek-VL2's config.json: candidate_resolutions, as [width, height].
MosaicForm read_squares_in_lines(const Json& config);

// The one that shows most of the picture, and of these the one with the least filling.
ImageSize best_size(ImageSize picture, const std::vector<ImageSize>& sizes);
// The picture within it.
ImageSize fitted_size(ImageSize picture, ImageSize within);

// Of the larger picture's cells, in lines: the tower's rows that are kept, counted from its first square's first row
// (that of all of the picture), line after line.
struct MosaicCells {
  std::vector<int64_t> row;
  int64_t height = 0, width = 0;
  // The size to which the kept ones are brought, which is theirs unless there are too many.
  int64_t to_height = 0, to_width = 0;
  // With those of the square of all of it, and a row at the end of each line.
  int64_t rows(const MosaicForm& form) const {
    const int64_t lines = to_height * (to_width + 1);
    return form.in_lines ? lines + 1 + form.cells * (form.cells + 1) : form.cells * form.cells + lines;
  }
};
// `picture`: its size; with in_lines that of the larger one.
MosaicCells mosaic_cells(ImageSize picture, const MosaicForm& form);
// Squares of the grid and the one before them.
int64_t mosaic_squares(ImageSize picture, const MosaicForm& form);
// With cut_patch: of each of them the lines and columns of patches that are not left out.
std::vector<std::array<int64_t, 2>> mosaic_patches(ImageSize picture, const MosaicForm& form);

}  // namespace apus
