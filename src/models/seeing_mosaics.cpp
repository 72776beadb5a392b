// SPDX-License-Identifier: Apache-2.0
// What a tower makes of squares, put together as the pictures were. Shapes: M rows of media, D hidden.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/upsample_bilinear2d.h>

#include "media/mosaic.h"
#include "models/seeing_decoder.h"

namespace apus {

namespace {
// Rows of pictures, [pictures, height, width] of them, as rows of another height and width.
at::Tensor resampled(const at::Tensor& x_RD, const std::array<int64_t, 3>& from, const std::array<int64_t, 2>& to) {
  const int64_t width = x_RD.size(1);
  const at::Tensor planes_NDHW = x_RD.reshape({from[0], from[1], from[2], width}).permute({0, 3, 1, 2}).contiguous();
  return at::upsample_bilinear2d(planes_NDHW, {to[0], to[1]}, false).permute({0, 2, 3, 1}).reshape({-1, width});
}
}  // namespace

// MosaicForm::in_lines. What ends a line and what stands between are the tower's last two rows, where they are not rows
// of their own.
at::Tensor SeeingDecoder::in_lines(const at::Tensor& row_MD, const Contents& contents) const {
  const MosaicForm& form = *seeing().mosaic;
  const int64_t square = form.cells * form.cells, width = row_MD.size(1), last = row_MD.size(0) - 1;
  const at::Tensor end_1D = newline_ ? newline_->data.unsqueeze(0) : row_MD.narrow(0, last - 1, 1),
                   between_1D = separator_ ? separator_->data.unsqueeze(0) : row_MD.narrow(0, last, 1);
  const auto lines = [&](const at::Tensor& x, int64_t high) {
    const at::Tensor ends = end_1D.unsqueeze(0).expand({high, 1, width});
    return at::cat({x.reshape({high, -1, width}), ends}, 1).reshape({-1, width});
  };
  std::vector<at::Tensor> parts;
  int64_t first = 0;
  for (const MediaContent* c : contents) {
    const at::Tensor own_RD = row_MD.narrow(0, first, c->shape[0] * square);
    first += own_RD.size(0);
    const MosaicCells cells = mosaic_cells({c->came_as[1], c->came_as[0]}, form);
    const at::Tensor large =
        lines(at::index_select(own_RD, 0, at::tensor(cells.row, at::kLong).to(row_MD.device())), cells.height);
    const at::Tensor whole = lines(own_RD.narrow(0, 0, square), form.cells);
    for (const at::Tensor& part : {form.whole_last ? large : whole, between_1D, form.whole_last ? whole : large})
      parts.push_back(part);
  }
  return at::cat(parts, 0);
}

// Of each video its frames with a quarter of the cells, and one end. Of each picture the square of all of it, and the
// lines of the larger one, each with its end.
at::Tensor SeeingDecoder::in_mosaics(const at::Tensor& row_MD, const Contents& contents) const {
  const MosaicForm& form = *seeing().mosaic;
  if (form.in_lines) return in_lines(row_MD, contents);
  const int64_t square = form.cells * form.cells, width = row_MD.size(1);
  const at::Tensor end_1D = newline_->data.unsqueeze(0);
  std::vector<at::Tensor> parts;
  int64_t first = 0;
  for (const MediaContent* c : contents) {
    const bool pooled = form.frames_pooled && c->type == MediaType::Video;
    const int64_t rows = pooled ? form.video_rows(c->shape[0]) : c->shape[0] * square;
    const at::Tensor own_RD = row_MD.narrow(0, first, rows);
    first += rows;
    if (pooled) {
      parts.push_back(own_RD);
      continue;
    }
    if (c->type == MediaType::Video) {
      parts.push_back(resampled(own_RD, {c->shape[0], form.cells, form.cells}, {form.frame_side(), form.frame_side()}));
      parts.push_back(end_1D);
      continue;
    }
    parts.push_back(own_RD.narrow(0, 0, square));
    if (c->shape[0] == 1) {
      parts.push_back(end_1D);
      continue;
    }
    const MosaicCells cells = mosaic_cells({c->came_as[1], c->came_as[0]}, form);
    at::Tensor grid = at::index_select(own_RD, 0, at::tensor(cells.row, at::kLong).to(row_MD.device()));
    if (cells.to_height != cells.height || cells.to_width != cells.width)
      grid = resampled(grid, {1, cells.height, cells.width}, {cells.to_height, cells.to_width});
    const at::Tensor ends = end_1D.unsqueeze(0).expand({cells.to_height, 1, width});
    parts.push_back(at::cat({grid.reshape({cells.to_height, cells.to_width, width}), ends}, 1).reshape({-1, width}));
  }
  return at::cat(parts, 0);
}

}  // namespace apus
