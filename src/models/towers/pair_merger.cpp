// SPDX-License-Identifier: Apache-2.0
// Shapes: N patches, M cells of all frames, R of pairs of frames, C numbers of a cell, D width.
#include "models/towers/pair_merger.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>

namespace apus {

PairMerger::PairMerger(const VisionSpec& spec, const TowerParts& parts)
    : cell_(spec.pairs.cell), patches_(spec.merge * spec.merge) {
  const std::string m = spec.merger_name() + ".";
  const PairsForm& p = spec.pairs;
  const auto block = [&](const char* name) {
    return Block{&parts.linear(m + name + p.in), &parts.linear(m + name + p.out), &parts.norm(m + name + p.norm)};
  };
  spatial_ = block(p.spatial), temporal_ = block(p.temporal);
  last_ = &parts.linear(m + p.last), last_norm_ = &parts.norm(m + p.last_norm);
}

at::Tensor PairMerger::Block::operator()(const at::Tensor& x_MC, const Step& s) const {
  return (*norm)((*out)(at::gelu((*in)(x_MC, s)), s));
}

at::Tensor PairMerger::operator()(const at::Tensor& x_ND, const std::vector<Grid>& grids,
                                  const std::function<Step(int64_t rows)>& step_of) const {
  const at::Tensor joined_MC = x_ND.reshape({-1, cell_});
  const at::Tensor cell_MC = spatial_(joined_MC, step_of(joined_MC.size(0)));
  std::vector<at::Tensor> pairs;
  int64_t first = 0;
  for (const Grid& g : grids) {
    const int64_t each = g[1] * g[2] / patches_;
    const at::Tensor own_FMC = cell_MC.narrow(0, first, g[0] * each).reshape({g[0], each, cell_});
    first += g[0] * each;
    const at::Tensor two_MC = g[0] == 1 ? at::cat({own_FMC, own_FMC}, 2)
                                        : own_FMC.reshape({g[0] / 2, 2, each, cell_}).transpose(1, 2).flatten(2);
    pairs.push_back(two_MC.reshape({-1, 2 * cell_}));
  }
  const at::Tensor pair_RC = at::cat(pairs, 0);
  const Step s = step_of(pair_RC.size(0));
  return (*last_norm_)((*last_)(temporal_(pair_RC, s), s));
}

}  // namespace apus
