// SPDX-License-Identifier: Apache-2.0
// The ranks of a run as a grid of named axes: who stands where, who shares a line, and which part of a tensor is whose.
// Arithmetic alone: no tensor library.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace apus {

// From the outermost to the innermost: pipeline stages; copies of the model; shards of its parameters; parts of a
// sequence, of a matrix. Groups of experts lie across these: ranks that hold the same parts of matrices.
enum class Axis { Pp, DpReplicate, DpShard, Cp, Tp, Ep };
constexpr size_t kAxes = 6;
const char* axis_name(Axis axis);

class AxisSet {
 public:
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (const Axis a : axes) bits_ |= 1u << static_cast<unsigned>(a);
  }
  constexpr AxisSet(Axis a) : bits_(1u << static_cast<unsigned>(a)) {}  // NOLINT: one axis is a set
  constexpr bool has(Axis a) const { return bits_ >> static_cast<unsigned>(a) & 1u; }
  constexpr unsigned bits() const { return bits_; }
  friend constexpr AxisSet operator|(AxisSet x, AxisSet y) {
    x.bits_ |= y.bits_;
    return x;
  }

 private:
  unsigned bits_ = 0;
};
constexpr AxisSet kDataAxes{Axis::DpReplicate, Axis::DpShard};  // along them ranks see different rows

struct MeshSizes {
  int pp = 1;
  int dp_replicate = 0;  // 0: as many as the other axes leave
  int dp_shard = 1, cp = 1, tp = 1, ep = 1;
};

class MeshLayout {
 public:
  MeshLayout() = default;  // one rank
  // Fault::Usage when the sizes do not multiply to the world; the text says which would.
  MeshLayout(const MeshSizes& sizes, int world, int rank);

  int world() const { return world_; }
  bool first() const { return rank_ == 0; }  // of the world: the one rank that writes files
  int size(AxisSet axes) const;              // of the product of these axes
  // This rank's place among those that differ from it in these axes alone.
  int rank(AxisSet axes) const;
  // Those, by their numbers in the world, rising; this one included.
  std::vector<int> ranks(AxisSet axes) const;
  AxisSet real(AxisSet axes) const;  // without axes of size 1
  std::string text() const;          // "dp_replicate 2 x tp 4", "1"

 private:
  int stride(size_t axis) const;
  int place(size_t axis, int rank) const { return rank / stride(axis) % size_[axis]; }
  std::array<int, kAxes> size_{1, 1, 1, 1, 1, 1};
  int world_ = 1, rank_ = 0;
};

// A parameter's dimension that the ranks of an axis share out. It is `groups` equal groups (key-value heads with their
// query heads) of `units` equal units (0: of single elements). While there are no more ranks than groups, each takes
// whole groups; beyond that a group has several ranks, which share out its units, or, if it is `shared`, all hold it.
struct Cut {
  Axis axis;
  int64_t dim;
  int64_t groups = 1, units = 0;  // below 0: whole_at(), nn/parts.h
  bool shared = false;
};

struct Range {
  int64_t begin, size;
  bool operator==(const Range&) const = default;
};

// The rank-th of `ranks` parts. The first size % ranks parts have one more than the rest; parts may be empty.
Range part_of(int64_t size, int rank, int ranks);
// The rank-th part of a dimension of this size by the cut.
Range part_of(int64_t size, const Cut& cut, int rank, int ranks);

// What of each dimension this rank holds. Of two cuts of a dimension, the second cuts what the first left.
std::vector<Range> local_part(const std::vector<int64_t>& full, const std::vector<Cut>& cuts, const MeshLayout& mesh);

}  // namespace apus
