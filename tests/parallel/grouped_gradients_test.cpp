// SPDX-License-Identifier: Apache-2.0
// Which ranks hold the same part of a parameter.
#include "parallel/grouped_gradients.h"

#include <gtest/gtest.h>

namespace apus {
namespace {

Param cut_param(std::vector<int64_t> full, std::vector<Cut> cuts) {
  Param p;
  p.full = std::move(full), p.cuts = std::move(cuts);
  p.cuts.push_back({Axis::DpShard, 0});
  return p;
}

TEST(Holders, AreThoseWithTheSamePart) {
  const MeshLayout two({.dp_replicate = 2, .tp = 2}, 4, 3), four({.tp = 4}, 4, 3), slices({.dp_shard = 4}, 4, 3);
  const Param norm = cut_param({8}, {}), matrix = cut_param({8, 4}, {{Axis::Tp, 1}}),
              keys = cut_param({8, 4}, {{.axis = Axis::Tp, .dim = 0, .groups = 2, .shared = true}});
  EXPECT_EQ(holders(norm, two), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(holders(matrix, two), (std::vector<int>{1, 3}));
  EXPECT_EQ(holders(keys, two), (std::vector<int>{1, 3}));
  EXPECT_EQ(holders(matrix, four), (std::vector<int>{3}));
  EXPECT_EQ(holders(keys, four), (std::vector<int>{2, 3}));  // two ranks share a key-value head
  EXPECT_EQ(holders(matrix, slices), (std::vector<int>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace apus
