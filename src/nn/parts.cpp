// SPDX-License-Identifier: Apache-2.0
#include "nn/parts.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "dist/launch/stage_cut.h"
#include "dist/mesh.h"

namespace apus {

namespace {

at::Tensor narrowed(const at::Tensor& t, int64_t dim, const Range& range) {
  return range.size == t.size(dim) ? t : t.narrow(dim, range.begin, range.size);
}

void require_shape(const at::Tensor& t, const std::vector<int64_t>& shape, const char* of) {
  require(t.sizes() == at::IntArrayRef(shape), Fault::Bug, "a tensor of shape ", c10::str(t.sizes()), " where ", of,
          " is of shape ", c10::str(at::IntArrayRef(shape)));
}

std::vector<int64_t> with_size(at::IntArrayRef shape, int64_t dim, int64_t size) {
  std::vector<int64_t> out = shape.vec();
  out[static_cast<size_t>(dim)] = size;
  return out;
}

// What `cut` divided, from the parts of the ranks along its axis. Shared groups come from several ranks, all alike.
at::Tensor put_back(const at::Tensor& part, const Cut& cut, int64_t size, MeshView& mesh) {
  const int ranks = mesh.size(cut.axis);
  const at::Tensor mine = part.contiguous();
  std::vector<Range> ranges;
  std::vector<at::Tensor> parts;
  for (int r = 0; r < ranks; ++r) {
    ranges.push_back(part_of(size, cut, r, ranks));
    parts.push_back(at::empty(with_size(part.sizes(), cut.dim, ranges.back().size), part.options()));
  }
  Comm& comm = part.is_cpu() ? mesh.host(cut.axis) : mesh.comm(cut.axis);
  comm.all_gather_uneven(parts, mine)->wait();
  at::Tensor whole = at::empty(with_size(part.sizes(), cut.dim, size), part.options());
  for (size_t r = 0; r < parts.size(); ++r) whole.narrow(cut.dim, ranges[r].begin, ranges[r].size).copy_(parts[r]);
  return whole;
}

}  // namespace

bool is_cut(const Param& param, const MeshView* mesh) {
  return mesh &&
         std::any_of(param.cuts.begin(), param.cuts.end(), [&](const Cut& c) { return mesh->size(c.axis) > 1; });
}

// part_of() reads it so.
Cut whole_at(Axis axis, int rank) { return {.axis = axis, .dim = 0, .units = -1 - rank}; }
bool leaves_whole(const Cut& cut) { return cut.units < 0; }

bool is_elsewhere(const Param& param, const MeshView* mesh) {
  return mesh && std::any_of(param.cuts.begin(), param.cuts.end(), [&](const Cut& c) {
           if (c.axis == Axis::Pp) return mesh->size(Axis::Pp) > 1 && !has_stage(c, mesh->rank(Axis::Pp));
           return leaves_whole(c) && param.part[0].size == 0;
         });
}

std::vector<Cut> unsharded_cuts(const Param& param) {
  std::vector<Cut> cuts = param.cuts;
  std::erase_if(cuts, [](const Cut& cut) { return cut.axis == Axis::DpShard; });
  return cuts;
}

at::Tensor own_part(at::Tensor whole, const Param& param) {
  require_shape(whole, param.full, "the whole");
  for (size_t d = 0; d < param.part.size(); ++d) whole = narrowed(whole, static_cast<int64_t>(d), param.part[d]);
  return whole;
}

at::Tensor gathered(const at::Tensor& part, const Param& param, MeshView* mesh) {
  require_shape(part, param.local_shape(), "this rank's part");
  if (!is_cut(param, mesh)) return part;
  at::Tensor whole = part;
  std::vector<Cut> before = param.cuts;  // the cuts that stand, undone from the last
  while (!before.empty()) {
    const Cut cut = before.back();
    before.pop_back();
    const Range range = local_part(param.full, before, mesh->layout())[static_cast<size_t>(cut.dim)];
    if (mesh->size(cut.axis) > 1) whole = put_back(whole, cut, range.size, *mesh);
  }
  return whole;
}

}  // namespace apus
