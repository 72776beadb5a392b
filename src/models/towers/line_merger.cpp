// SPDX-License-Identifier: Apache-2.0
// Shapes: N patches, M cells, C numbers of a cell, R rows, D width of patches or of the decoder.
#include "models/towers/line_merger.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>

#include "ops/ops.h"

namespace apus {

LineMerger::LineMerger(const VisionSpec& spec, const TowerParts& parts) : width_(spec.width), merge_(spec.merge) {
  const std::string m = spec.merger_name() + ".";
  const LinesForm& l = spec.lines;
  before_ = &parts.norm(m + l.before), behind_ = &parts.norm(m + l.behind);
  narrow_ = &parts.table(m + l.narrow), wide_ = &parts.table(m + l.wide), linear_ = &parts.linear(m + l.linear);
  newline_ = &parts.bare(m + l.newline), begin_ = &parts.bare(m + l.begin), end_ = &parts.bare(m + l.end);
}

at::Tensor LineMerger::operator()(const at::Tensor& x_ND, const std::vector<Grid>& grids,
                                  const std::function<Step(int64_t rows)>& step_of) const {
  // Each cell is read whole: the convolutions are products.
  const auto product = [](const at::Tensor& x, const Table& table) {
    return ops::linear(x, table.weight().flatten(1), table.bias());
  };
  const at::Tensor cell_MD = (*before_)(x_ND).reshape({-1, merge_ * merge_, width_}).transpose(1, 2).flatten(1);
  const at::Tensor cell_MC = product(at::gelu(product(cell_MD, *narrow_)), *wide_);
  const int64_t numbers = cell_MC.size(1);
  std::vector<at::Tensor> lines;
  std::vector<int64_t> count;
  int64_t first = 0;
  for (const Grid& g : grids)
    for (int64_t frame = 0; frame < g[0]; ++frame) {
      const int64_t high = g[1] / merge_, wide = g[2] / merge_;
      const at::Tensor own = cell_MC.narrow(0, first, high * wide).reshape({high, wide, numbers});
      const at::Tensor ends = newline_->data.reshape({1, 1, -1}).expand({high, 1, numbers});
      lines.push_back(at::cat({own, ends}, 1).reshape({-1, numbers}));
      count.push_back(lines.back().size(0));
      first += high * wide;
    }
  const at::Tensor row_RC = at::cat(lines, 0);
  const at::Tensor row_RD = (*linear_)(row_RC, step_of(row_RC.size(0)));
  std::vector<at::Tensor> rows;
  first = 0;
  for (const int64_t own : count) {
    rows.insert(rows.end(), {begin_->data.unsqueeze(0), row_RD.narrow(0, first, own), end_->data.unsqueeze(0)});
    first += own;
  }
  return (*behind_)(at::cat(rows, 0));
}

}  // namespace apus
