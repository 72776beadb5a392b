// SPDX-License-Identifier: Apache-2.0
#include "dist/launch/mesh_layout.h"

#include <algorithm>

#include "base/error.h"
#include "dist/launch/stage_cut.h"

namespace apus {

namespace {

using Sizes = std::array<int, kAxes>;
constexpr auto kFill = static_cast<size_t>(Axis::DpReplicate), kTp = static_cast<size_t>(Axis::Tp),
               kEp = static_cast<size_t>(Axis::Ep);

// Of the grid: groups of experts lie across it.
int product(const Sizes& sizes, size_t but = kAxes) {
  int64_t all = 1;
  for (size_t a = 0; a < kAxes; ++a) {
    if (a != but && a != kEp) all *= sizes[a];
    require(all <= 1 << 20, Fault::Usage, "a mesh of more than a million ranks");
  }
  return static_cast<int>(all);
}

std::string named(const Sizes& sizes) {
  std::string text;
  for (size_t a = 0; a < kAxes; ++a)
    if (sizes[a] != 1) text += str(text.empty() ? "" : " x ", axis_name(static_cast<Axis>(a)), " ", sizes[a]);
  return text.empty() ? "1" : text;
}

// The sizes of one axis that would make the mesh fit: one when all are given, else the divisors next to what was asked.
std::vector<int> fitting(const Sizes& sizes, size_t axis, int world, bool filled) {
  const int others = product(sizes, axis);
  if (world % others != 0) return {};
  const int room = world / others;
  if (!filled) return {room};
  std::vector<int> out;
  for (int below = std::min(sizes[axis], room); below > 0 && out.empty(); --below)
    if (room % below == 0) out.push_back(below);
  for (int above = sizes[axis]; above <= room && out.size() < 2; ++above)
    if (room % above == 0) out.push_back(above);
  return out;
}

[[noreturn]] void refuse(const Sizes& sizes, int world, bool filled) {
  std::string would;
  for (size_t a = 0; a < kEp; ++a) {
    if (filled ? a == kFill || sizes[a] == 1 : sizes[a] == 1 && a != kFill) continue;
    for (const int n : fitting(sizes, a, world, filled))
      would += str(would.empty() ? "" : ", ", axis_name(static_cast<Axis>(a)), " ", n);
  }
  const int places = product(sizes), below = world / places * places;
  const std::string ranks = !filled ? str(places) : below > 0 ? str(below, " or ", below + places) : str(places);
  fail(Fault::Usage, "a mesh of ", named(sizes), " has ", places, places == 1 ? " place" : " places",
       filled ? " for each copy of the model" : "", ", but ", world,
       world == 1 ? " rank runs: " : " ranks run: ", would.empty() ? "" : str(would, " would fit; or "), "start ",
       ranks, " ranks");
}

}  // namespace

const char* axis_name(Axis axis) {
  static constexpr const char* names[kAxes] = {"pp", "dp_replicate", "dp_shard", "cp", "tp", "ep"};
  return names[static_cast<size_t>(axis)];
}

MeshLayout::MeshLayout(const MeshSizes& s, int world, int rank)
    : size_{s.pp, s.dp_replicate, s.dp_shard, s.cp, s.tp, s.ep}, world_(world), rank_(rank) {
  require(world > 0 && rank >= 0 && rank < world, Fault::Bug, "rank ", rank, " of ", world);
  const bool filled = s.dp_replicate == 0;
  if (filled) size_[kFill] = 1;
  for (size_t a = 0; a < kAxes; ++a)
    require(size_[a] > 0, Fault::Usage, "the size of the mesh axis ", axis_name(static_cast<Axis>(a)),
            " must be above 0, it is ", size_[a]);
  const int places = product(size_);
  if (filled ? world % places != 0 : world != places) refuse(size_, world, filled);
  if (filled) size_[kFill] = world / places;
  const int readers = world / s.pp / s.tp;
  require(readers % s.ep == 0, Fault::Usage, s.ep,
          " ranks that share out the experts: they are taken from those that read other ",
          "tokens, of which there are ", readers, ": give a divisor of that");
}

// Groups of experts are neighbours among the ranks that read other tokens and hold the same parts of matrices.
int MeshLayout::stride(size_t axis) const {
  if (axis == kEp) return size_[kTp];
  int n = 1;
  for (size_t a = axis + 1; a < kEp; ++a) n *= size_[a];
  return n;
}

int MeshLayout::size(AxisSet axes) const {
  int n = 1;
  for (size_t a = 0; a < kAxes; ++a)
    if (axes.has(static_cast<Axis>(a))) n *= size_[a];
  return n;
}

int MeshLayout::rank(AxisSet axes) const {
  int n = 0;
  for (size_t a = 0; a < kAxes; ++a)
    if (axes.has(static_cast<Axis>(a))) n = n * size_[a] + place(a, rank_);
  return n;
}

std::vector<int> MeshLayout::ranks(AxisSet axes) const {
  std::vector<int> out;
  const AxisSet asked = real(axes);
  if (asked.has(Axis::Ep)) {
    require(asked.bits() == AxisSet(Axis::Ep).bits(), Fault::Bug, "ranks along groups of experts and another axis");
    for (int i = 0, first = rank_ - place(kEp, rank_) * stride(kEp); i < size_[kEp]; ++i)
      out.push_back(first + i * stride(kEp));
    return out;
  }
  for (int r = 0; r < world_; ++r) {
    bool alike = true;
    for (size_t a = 0; a < kEp; ++a)
      alike = alike && (axes.has(static_cast<Axis>(a)) || place(a, r) == place(a, rank_));
    if (alike) out.push_back(r);
  }
  return out;
}

AxisSet MeshLayout::real(AxisSet axes) const {
  AxisSet out{};
  for (size_t a = 0; a < kAxes; ++a)
    if (axes.has(static_cast<Axis>(a)) && size_[a] > 1) out = out | static_cast<Axis>(a);
  return out;
}

std::string MeshLayout::text() const { return named(size_); }

Range part_of(int64_t size, int rank, int ranks) {
  const int64_t least = size / ranks, more = size % ranks;
  return {rank * least + std::min<int64_t>(rank, more), least + (rank < more)};
}

Cut stage_cut(const std::vector<int>& stages) {
  Cut cut{.axis = Axis::Pp, .dim = 0};
  for (const int stage : stages) {
    require(stage >= 0 && stage < kMostStages, Fault::Bug, "stage ", stage, " of a pipeline");
    cut.units |= int64_t{1} << stage;
  }
  return cut;
}

Range part_of(int64_t size, const Cut& cut, int rank, int ranks) {
  if (cut.axis == Axis::Pp) return {0, has_stage(cut, rank) || ranks == 1 ? size : 0};
  require(cut.groups > 0 && size % cut.groups == 0, Fault::Bug, "a dimension of ", size, " cut into ", cut.groups,
          " groups");
  if (size == 0) return {0, 0};
  if (cut.units < 0) return {0, rank == -1 - cut.units ? size : 0};  // whole, of one rank: nn/parts.h
  const int64_t group_size = size / cut.groups;
  if (ranks <= cut.groups) {
    const Range groups = part_of(cut.groups, rank, ranks);
    return {groups.begin * group_size, groups.size * group_size};
  }
  int64_t group = 0;
  Range sharers = part_of(ranks, 0, static_cast<int>(cut.groups));  // the ranks of that group
  while (rank >= sharers.begin + sharers.size)
    sharers = part_of(ranks, static_cast<int>(++group), static_cast<int>(cut.groups));
  if (cut.shared) return {group * group_size, group_size};
  const int64_t units = cut.units > 0 ? cut.units : group_size;
  require(group_size % units == 0, Fault::Bug, "a group of ", group_size, " cut into ", units, " units");
  const Range mine = part_of(units, rank - static_cast<int>(sharers.begin), static_cast<int>(sharers.size));
  const int64_t unit_size = group_size / units;
  return {group * group_size + mine.begin * unit_size, mine.size * unit_size};
}

std::vector<Range> local_part(const std::vector<int64_t>& full, const std::vector<Cut>& cuts, const MeshLayout& mesh) {
  std::vector<Range> part;
  for (const int64_t size : full) part.push_back({0, size});
  for (const Cut& cut : cuts) {
    require(cut.dim >= 0 && cut.dim < static_cast<int64_t>(full.size()), Fault::Bug, "a cut of dimension ", cut.dim,
            " of ", full.size());
    Range& whole = part[static_cast<size_t>(cut.dim)];
    const Range mine = part_of(whole.size, cut, mesh.rank(cut.axis), mesh.size(cut.axis));
    whole = {whole.begin + mine.begin, mine.size};
  }
  return part;
}

}  // namespace apus
