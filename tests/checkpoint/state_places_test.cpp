// SPDX-License-Identifier: Apache-2.0
// Pieces of an optimizer's state, put together for ranks that hold other parts.
#include "checkpoint/state_places.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/state.h"

namespace apus {
namespace {

at::Tensor whole() { return at::arange(24, at::kFloat).view({6, 4}); }
at::Tensor piece(const std::vector<Range>& held) {
  return whole().narrow(0, held[0].begin, held[0].size).narrow(1, held[1].begin, held[1].size).contiguous();
}
StatePlace place(std::vector<Range> held) { return {{6, 4}, std::move(held), ""}; }

// As a mesh of two parts of columns, each in rows of two ranks, would save it.
RunState saved(const std::vector<std::vector<Range>>& pieces) {
  RunState state;
  state.optimizer = "adamw", state.in_parts = true;
  for (const auto& held : pieces) {
    state.optimizer_slices.push_back({{"w/m", piece(held)}});
    state.optimizer_places.push_back({{"w", place(held)}});
  }
  return state;
}
const std::vector<std::vector<Range>> kQuarters = {
    {{0, 3}, {0, 2}}, {{3, 3}, {0, 2}}, {{0, 3}, {2, 2}}, {{3, 3}, {2, 2}}};

TEST(StatePlaces, PartsBecomeOtherParts) {
  for (const std::vector<Range>& mine :
       {std::vector<Range>{{0, 6}, {0, 4}}, {{1, 4}, {1, 2}}, {{3, 3}, {2, 2}}, {{5, 1}, {0, 4}}, {{2, 0}, {0, 4}}}) {
    const auto state = state_at(saved(kQuarters), {{"w", place(mine)}});
    ASSERT_EQ(state.size(), 1u);
    EXPECT_TRUE(at::equal(state.at("w/m"), piece(mine)));
  }
}

TEST(StatePlaces, RowsWithoutPlacesAreOneBehindTheOther) {
  RunState state;
  state.optimizer_slices = {{{"w/m", whole().narrow(0, 0, 4)}}, {{"w/m", whole().narrow(0, 4, 2)}}};
  const std::vector<Range> mine = {{3, 2}, {0, 2}};
  EXPECT_TRUE(at::equal(state_at(state, {{"w", place(mine)}}).at("w/m"), piece(mine)));
}

TEST(StatePlaces, ATiedParameterIsFoundUnderItsOtherName) {
  StatePlace head = place({{0, 6}, {0, 4}});
  head.tied = "w";
  EXPECT_TRUE(at::equal(state_at(saved(kQuarters), {{"head", head}}).at("head/m"), whole()));
}

TEST(StatePlaces, WhatIsMissingOrInBlocksIsRefused) {
  const StatePlaces all = {{"w", place({{0, 6}, {0, 4}})}};
  EXPECT_THROW(state_at(saved({kQuarters[0], kQuarters[1], kQuarters[2]}), all), Error);
  RunState blocks = saved(kQuarters);
  for (auto& slice : blocks.optimizer_slices) slice["w/codes"] = at::arange(3);
  EXPECT_THROW(state_at(blocks, all), Error);
  RunState one;
  one.optimizer_slices = {{{"w/codes", at::arange(3)}}};
  EXPECT_EQ(state_at(one, all).at("w/codes").numel(), 3);  // whole, and wanted whole
  EXPECT_THROW(state_at(one, {{"w", place({{0, 3}, {0, 4}})}}), Error);
}

TEST(StatePlaces, AreReadAsTheyWereWritten) {
  const StatePlaces places = saved(kQuarters).optimizer_places[3];
  EXPECT_EQ(state_places_in(json_of(places).dump()), places);
  for (const char* broken : {"", "[1]", R"({"w": {"full": [6], "held": [[0, 1], [0, 2]]}})", R"({"w": 3})"})
    EXPECT_THROW(state_places_in(broken), Error) << broken;
}

}  // namespace
}  // namespace apus
