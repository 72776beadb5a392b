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

// From the outermost to the innermost: ranks that differ in the last one are neighbours, on one machine where possible.
// Pipeline stages; copies of the model; shards of its parameters; parts of a sequence, of a matrix; groups of experts.
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
  int size(AxisSet axes) const;  // of the product of these axes
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

// A parameter's dimension that an axis slices.
struct Cut {
  Axis axis;
  int64_t dim;
};

struct Range {
  int64_t begin, size;
  bool operator==(const Range&) const = default;
};

// The rank-th of `ranks` parts. Sizes differ by at most one:
// the first size % ranks parts have one more; parts may be empty.
Range part_of(int64_t size, int rank, int ranks);

// What of each dimension this rank holds. Cuts of the same dimension follow one another:
// the second cuts the first's part.
std::vector<Range> local_part(const std::vector<int64_t>& full, const std::vector<Cut>& cuts, const MeshLayout& mesh);

}  // namespace apus
