// SPDX-License-Identifier: Apache-2.0
// Who stands where in a mesh, whom it shares a line with, which sizes are refused, and that parts make up the whole.
#include "dist/launch/mesh_layout.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "tests/refusal.h"

namespace apus {
namespace {

using Ranks = std::vector<int>;

TEST(MeshLayout, TheDataAxisTakesWhatIsLeft) {
  EXPECT_EQ(MeshLayout().size(kDataAxes), 1);
  const MeshLayout plain({}, 8, 5);
  EXPECT_EQ(plain.size(kDataAxes), 8);
  EXPECT_EQ(plain.rank(kDataAxes), 5);
  EXPECT_EQ(plain.ranks(kDataAxes), (Ranks{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(plain.ranks(Axis::Tp), Ranks{5});
  EXPECT_EQ(plain.text(), "dp_replicate 8");
  EXPECT_EQ(MeshLayout({.tp = 4}, 8, 5).text(), "dp_replicate 2 x tp 4");
  EXPECT_EQ(MeshLayout({.dp_replicate = 1}, 1, 0).text(), "1");
}

TEST(MeshLayout, PlacesAlongAxesAndSets) {
  const MeshSizes sizes{.pp = 2, .dp_replicate = 0, .dp_shard = 3, .tp = 2};
  // pp 2 x dp_replicate 2 x dp_shard 3 x tp 2: 15 = 1*12 + 0*6 + 1*2 + 1.
  const MeshLayout mesh(sizes, 24, 15);
  EXPECT_EQ(mesh.rank(Axis::Pp), 1);
  EXPECT_EQ(mesh.rank(Axis::DpReplicate), 0);
  EXPECT_EQ(mesh.rank(Axis::DpShard), 1);
  EXPECT_EQ(mesh.rank(Axis::Tp), 1);
  EXPECT_EQ(mesh.ranks(Axis::Tp), (Ranks{14, 15}));
  EXPECT_EQ(mesh.ranks(Axis::DpShard), (Ranks{13, 15, 17}));
  EXPECT_EQ(mesh.ranks(kDataAxes), (Ranks{13, 15, 17, 19, 21, 23}));
  EXPECT_EQ(mesh.rank(kDataAxes), 1);
  EXPECT_EQ(mesh.ranks({Axis::Tp, Axis::Pp}), (Ranks{2, 3, 14, 15}));
  EXPECT_EQ(mesh.rank({Axis::Tp, Axis::Pp}), 3);
}

// Of any set of axes: lines are disjoint, cover the world, agree on their members, and number them in order. Groups of
// experts lie across the others, and stand for themselves.
TEST(MeshLayout, LinesDivideTheWorld) {
  const MeshSizes sizes{.pp = 2, .dp_replicate = 3, .dp_shard = 2, .cp = 1, .tp = 2, .ep = 2};
  constexpr unsigned experts = AxisSet(Axis::Ep).bits();
  for (unsigned bits = 0; bits <= experts; ++bits) {
    AxisSet axes{};
    for (size_t a = 0; a < kAxes; ++a)
      if (bits >> a & 1u) axes = axes | static_cast<Axis>(a);
    std::set<Ranks> lines;
    for (int r = 0; r < 24; ++r) {
      const MeshLayout mesh(sizes, 24, r);
      const Ranks line = mesh.ranks(axes);
      ASSERT_EQ(line.size(), static_cast<size_t>(mesh.size(axes)));
      ASSERT_EQ(line[static_cast<size_t>(mesh.rank(axes))], r);
      EXPECT_EQ(mesh.ranks(mesh.real(axes)), line);
      lines.insert(line);
    }
    size_t members = 0;
    for (const Ranks& line : lines) members += line.size();
    EXPECT_EQ(members, 24u) << bits;
  }
}

// They are taken from the ranks that read other tokens: neighbours among those that hold the same parts of matrices.
TEST(MeshLayout, GroupsOfExpertsReadOtherRows) {
  const MeshLayout mesh({.tp = 2, .ep = 2}, 8, 5);
  EXPECT_EQ(mesh.size(kDataAxes), 4);
  EXPECT_EQ(mesh.ranks(Axis::Tp), (Ranks{4, 5}));
  EXPECT_EQ(mesh.ranks(Axis::Ep), (Ranks{5, 7}));
  EXPECT_EQ(mesh.rank(Axis::Ep), 0);
  EXPECT_EQ(MeshLayout({.pp = 2, .cp = 2, .ep = 4}, 8, 6).ranks(Axis::Ep), (Ranks{4, 5, 6, 7}));
  test::expect_says(test::refusal(Fault::Usage, [] { MeshLayout({.tp = 2, .ep = 3}, 8, 0); }),
                    "of which there are 4: give a divisor");
}

std::string complaint(const MeshSizes& sizes, int world) {
  return test::refusal(Fault::Usage, [&] { MeshLayout(sizes, world, 0); });
}

TEST(MeshLayout, SizesThatDoNotFitAreRefusedWithThoseThatWould) {
  EXPECT_EQ(
      complaint({.dp_replicate = 3, .tp = 2}, 8),
      "a mesh of dp_replicate 3 x tp 2 has 6 places, but 8 ranks run: dp_replicate 4 would fit; or start 6 ranks");
  EXPECT_EQ(complaint({.dp_replicate = 2, .tp = 2}, 8),
            "a mesh of dp_replicate 2 x tp 2 has 4 places, but 8 ranks run: dp_replicate 4, tp 4 would fit; or start 4 "
            "ranks");
  EXPECT_EQ(complaint({.tp = 3}, 8),
            "a mesh of tp 3 has 3 places for each copy of the model, but 8 ranks run: tp 2, tp 4 would fit; or start 6 "
            "or 9 ranks");
  EXPECT_EQ(
      complaint({.tp = 16}, 8),
      "a mesh of tp 16 has 16 places for each copy of the model, but 8 ranks run: tp 8 would fit; or start 16 ranks");
  EXPECT_EQ(complaint({.pp = 3, .tp = 5}, 7),
            "a mesh of pp 3 x tp 5 has 15 places for each copy of the model, but 7 ranks run: start 15 ranks");
  EXPECT_NE(complaint({.tp = 0}, 8).find("tp must be above 0, it is 0"), std::string::npos);
  EXPECT_NE(complaint({.pp = 1 << 30, .tp = 1 << 30}, 8).find("million"), std::string::npos);
}

TEST(LocalPart, TheFirstPartsHaveOneMore) {
  EXPECT_EQ(part_of(10, 0, 4), (Range{0, 3}));
  EXPECT_EQ(part_of(10, 1, 4), (Range{3, 3}));
  EXPECT_EQ(part_of(10, 2, 4), (Range{6, 2}));
  EXPECT_EQ(part_of(10, 3, 4), (Range{8, 2}));
  EXPECT_EQ(part_of(2, 2, 3), (Range{2, 0}));
  EXPECT_EQ(part_of(0, 1, 3), (Range{0, 0}));
}

// 3 groups of 4 units of 2: the parts of 2, 3, 4, 5 ranks.
TEST(LocalPart, GroupsStayTogetherWhileThereAreEnough) {
  const auto parts = [](const Cut& cut, int ranks) {
    std::vector<std::pair<int64_t, int64_t>> all;
    for (int r = 0; r < ranks; ++r) {
      const Range part = part_of(24, cut, r, ranks);
      all.emplace_back(part.begin, part.size);
    }
    return all;
  };
  using Parts = std::vector<std::pair<int64_t, int64_t>>;
  const Cut divided{.axis = Axis::Tp, .dim = 0, .groups = 3, .units = 4};
  EXPECT_EQ(parts(divided, 2), (Parts{{0, 16}, {16, 8}}));
  EXPECT_EQ(parts(divided, 3), (Parts{{0, 8}, {8, 8}, {16, 8}}));
  EXPECT_EQ(parts(divided, 4), (Parts{{0, 4}, {4, 4}, {8, 8}, {16, 8}}));
  EXPECT_EQ(parts(divided, 5), (Parts{{0, 4}, {4, 4}, {8, 4}, {12, 4}, {16, 8}}));
  const Cut shared{.axis = Axis::Tp, .dim = 0, .groups = 3, .shared = true};
  EXPECT_EQ(parts(shared, 2), parts(divided, 2));
  EXPECT_EQ(parts(shared, 5), (Parts{{0, 8}, {0, 8}, {8, 8}, {8, 8}, {16, 8}}));
  EXPECT_EQ(parts({.axis = Axis::Tp, .dim = 0}, 5), (Parts{{0, 5}, {5, 5}, {10, 5}, {15, 5}, {20, 4}}));
  EXPECT_THROW(part_of(25, divided, 0, 2), Error);
}

TEST(LocalPart, PartsOfAllRanksMakeTheWholeOnce) {
  const MeshSizes sizes{.dp_shard = 3, .tp = 2, .ep = 2};
  const std::vector<int64_t> full{7, 5};
  const std::vector<Cut> cuts{{Axis::Ep, 0}, {Axis::DpShard, 0}, {Axis::Tp, 1}};
  std::vector<int> seen(35, 0);
  for (int r = 0; r < 12; ++r) {
    const auto part = local_part(full, cuts, MeshLayout(sizes, 12, r));
    for (int64_t i = 0; i < part[0].size; ++i)
      for (int64_t j = 0; j < part[1].size; ++j)
        ++seen[static_cast<size_t>((part[0].begin + i) * 5 + part[1].begin + j)];
  }
  for (const int n : seen) EXPECT_EQ(n, 1);
  EXPECT_EQ(local_part(full, cuts, MeshLayout()), (std::vector<Range>{{0, 7}, {0, 5}}));
  EXPECT_EQ(local_part(full, {}, MeshLayout(sizes, 12, 7)), (std::vector<Range>{{0, 7}, {0, 5}}));
  EXPECT_THROW(local_part(full, {{Axis::Tp, 2}}, MeshLayout()), Error);
}

}  // namespace
}  // namespace apus
