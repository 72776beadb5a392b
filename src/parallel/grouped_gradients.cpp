// SPDX-License-Identifier: Apache-2.0
#include "parallel/grouped_gradients.h"

#include <algorithm>

#include "device/agree.h"
#include "nn/parts.h"
#include "ops/ops.h"
#include "parallel/wide_gradient.h"

namespace apus {

namespace {
MeshSizes sizes_of(const MeshLayout& layout) {
  return {.pp = layout.size(Axis::Pp),
          .dp_replicate = layout.size(Axis::DpReplicate),
          .dp_shard = layout.size(Axis::DpShard),
          .cp = layout.size(Axis::Cp),
          .tp = layout.size(Axis::Tp),
          .ep = layout.size(Axis::Ep)};
}
}  // namespace

std::vector<int> holders(const Param& param, const MeshLayout& layout) {
  const MeshSizes sizes = sizes_of(layout);
  const std::vector<Cut> cuts = unsharded_cuts(param);
  const std::vector<Range> mine = local_part(param.full, cuts, layout);
  std::vector<int> ranks;
  for (int r = 0; r < layout.world(); ++r)
    if (local_part(param.full, cuts, MeshLayout(sizes, layout.world(), r)) == mine) ranks.push_back(r);
  return ranks;
}

std::vector<int> slice_holders(const Param& param, const MeshLayout& layout) {
  std::vector<int> ranks = holders(param, layout);
  std::erase_if(ranks, [&](int r) {
    return MeshLayout(sizes_of(layout), layout.world(), r).rank(Axis::DpShard) != layout.rank(Axis::DpShard);
  });
  return ranks;
}

void GroupedGradients::begin(bool last) {
  for (const Group& g : groups_)
    if (g.sync) g.sync->begin(last);
}

void GroupedGradients::finish(bool last) {
  for (const Group& g : groups_) {
    if (g.sync) g.sync->finish(last);
    for (const at::Tensor& t : g.updated)
      if (g.wide && !g.sync && !last) widen_gradient(t);
  }
}

bool GroupedGradients::in_step() const {
  return in_step_ ||
         std::any_of(groups_.begin(), groups_.end(), [](const Group& g) { return g.sync && g.sync->in_step(); });
}

// Each number counts once, however many ranks hold it.
double GroupedGradients::of_all(double /*squares*/) {
  double sum = 0;
  for (const Group& g : groups_) {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& t : g.updated)
      if (t.grad().defined()) gradients.push_back(t.grad());
    sum += ops::sum_of_squares(gradients) / g.copies;
  }
  return sum_over(world_, sum);
}

void GroupedGradients::updated() {
  for (const Group& g : groups_)
    if (g.sync) g.sync->updated();
}

void GroupedGradients::rest() {
  for (const Group& g : groups_)
    if (g.sync) g.sync->rest();
}

}  // namespace apus
