// SPDX-License-Identifier: Apache-2.0
// Which layers each stage of a pipeline gets, and the order of its passes.
#include "parallel/placement/stages.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "base/error.h"
#include "dist/launch/stage_cut.h"
#include "tests/refusal.h"

namespace apus {
namespace {

std::vector<int64_t> counts(int64_t layers, const StageWish& wish) {
  std::vector<int64_t> out;
  int64_t begin = 0;
  for (const Range& range : stage_layers(layers, wish)) {
    EXPECT_EQ(range.begin, begin);
    out.push_back(range.size), begin += range.size;
  }
  EXPECT_EQ(begin, layers);
  return out;
}

using Counts = std::vector<int64_t>;

TEST(Stages, LayersAreSharedOut) {
  EXPECT_EQ(counts(8, {.stages = 4}), (Counts{2, 2, 2, 2}));
  EXPECT_EQ(counts(10, {.stages = 4}), (Counts{3, 3, 2, 2}));
  EXPECT_EQ(counts(10, {.stages = 3, .first = 2}), (Counts{2, 4, 4}));
  EXPECT_EQ(counts(10, {.stages = 3, .first = 4, .last = 1}), (Counts{4, 5, 1}));
  EXPECT_EQ(counts(5, {.stages = 2, .first = 3, .last = 2}), (Counts{3, 2}));
  EXPECT_EQ(counts(5, {.stages = 1}), (Counts{5}));
  EXPECT_EQ(counts(24, {.stages = 4, .layout = "6,7,7,4"}), (Counts{6, 7, 7, 4}));
  EXPECT_EQ(counts(24, {.stages = 4, .layout = "Et*6|t*7|t*7|t*4L"}), (Counts{6, 7, 7, 4}));
  EXPECT_EQ(counts(8, {.stages = 4, .layout = "E,t|(tt|)*2tttL"}), (Counts{1, 2, 2, 3}));
}

TEST(Stages, WishesThatDoNotFitAreRefused) {
  const auto refusal = [](int64_t layers, const StageWish& wish) {
    return test::refusal(Fault::Usage, [&] { stage_layers(layers, wish); });
  };
  EXPECT_EQ(refusal(2, {.stages = 3}), "every stage of a pipeline needs a layer at least, and 3 stages share 2");
  EXPECT_NE(refusal(8, {.stages = 2, .first = 5, .last = 4}).find("leave -1 of 8 layers"), std::string::npos);
  EXPECT_NE(refusal(8, {.stages = 3, .first = 5, .last = 3}).find("want one at least"), std::string::npos);
  EXPECT_NE(refusal(8, {.stages = 2, .layout = "4,3"}).find("has 7 layers, and the model 8"), std::string::npos);
  EXPECT_NE(refusal(8, {.stages = 3, .layout = "4,4"}).find("has 2 stages"), std::string::npos);
  EXPECT_NE(refusal(8, {.stages = 2, .layout = "4,x"}).find("no number of layers"), std::string::npos);
  EXPECT_NE(refusal(8, {.stages = 2, .layout = "tttt|ttttL"}).find("begin with E"), std::string::npos);
  EXPECT_NE(refusal(8, {.stages = 2, .layout = "Etm|tL"}).find("'m' is not possible"), std::string::npos);
  EXPECT_NE(refusal(8, {.stages = 2, .layout = "E(t|"}).find("without ')'"), std::string::npos);
  EXPECT_NE(refusal(8, {.stages = 2, .layout = "E((t*999)*999)*999L"}).find("too many layers"), std::string::npos);
  EXPECT_NE(refusal(8, {.stages = 2, .first = 4, .layout = "4,4"}).find("leave out"), std::string::npos);
}

TEST(Stages, OneForwardOneBackward) {
  EXPECT_EQ(one_forward_one_backward(0, 1, 2),
            (std::vector<PipelinePass>{{0, false}, {0, true}, {1, false}, {1, true}}));
  EXPECT_EQ(one_forward_one_backward(0, 2, 3),
            (std::vector<PipelinePass>{{0, false}, {1, false}, {0, true}, {2, false}, {1, true}, {2, true}}));
  for (const int stages : {1, 2, 3, 5})
    for (const int64_t micro_batches : {0, 1, 2, 4, 9})
      for (int stage = 0; stage < stages; ++stage) {
        int64_t kept = 0, forward = 0, backward = 0;
        for (const PipelinePass& pass : one_forward_one_backward(stage, stages, micro_batches)) {
          EXPECT_EQ(pass.micro_batch, pass.backward ? backward++ : forward++);
          kept = std::max(kept, forward - backward);
          EXPECT_GE(forward, backward);
        }
        EXPECT_EQ(forward, micro_batches);
        EXPECT_EQ(backward, micro_batches);
        EXPECT_LE(kept, stages - stage);
      }
}

TEST(Stages, PiecesComeInTurn) {
  EXPECT_EQ(counts(8, {.stages = 2, .pieces = 2}), (Counts{2, 2, 2, 2}));
  EXPECT_EQ(counts(7, {.stages = 2, .pieces = 2, .layout = "Et|tt|tt|ttL"}), (Counts{1, 2, 2, 2}));
  EXPECT_EQ(counts(7, {.stages = 2, .layout = "1,2,2,2"}), (Counts{1, 2, 2, 2}));  // two of each, too
  const auto refusal = [](int64_t layers, const StageWish& wish) {
    return test::refusal(Fault::Usage, [&] { stage_layers(layers, wish); });
  };
  test::expect_says(refusal(3, {.stages = 2, .pieces = 2}), "for each of its pieces, and 4 pieces share 3");
  test::expect_says(refusal(8, {.stages = 2, .pieces = 2, .first = 3}), "--pipeline_model_parallel_layout with");
  test::expect_says(refusal(8, {.stages = 2, .pieces = 2, .layout = "4,4"}), "is 2, with 2 pieces each");
  // Two micro-batches through the first piece, then through the second.
  EXPECT_EQ(one_forward_one_backward(1, 2, 2, 2), (std::vector<PipelinePass>{{0, false, 0},
                                                                             {1, false, 0},
                                                                             {0, false, 1},
                                                                             {0, true, 1},
                                                                             {1, false, 1},
                                                                             {1, true, 1},
                                                                             {0, true, 0},
                                                                             {1, true, 0}}));
}

// Each pass waits for what the pass before it gives, wherever that is made: all come to their end.
TEST(Stages, PiecesWaitForNobodyForEver) {
  for (const int stages : {2, 3, 4, 5})
    for (const int pieces : {1, 2, 3, 4})
      for (int64_t micro_batches = 1; micro_batches < 20; ++micro_batches) {
        std::vector<std::vector<PipelinePass>> passes;
        for (int stage = 0; stage < stages; ++stage)
          passes.push_back(one_forward_one_backward(stage, stages, micro_batches, pieces));
        std::set<std::tuple<int64_t, int, bool>> made;  // micro-batch, number of the piece, backward
        std::vector<size_t> next(passes.size(), 0), kept(passes.size(), 0);
        const int last = stages * pieces - 1;
        for (bool moves = true; moves;) {
          moves = false;
          for (int stage = 0; stage < stages; ++stage) {
            auto& at = next[static_cast<size_t>(stage)];
            if (at == passes[static_cast<size_t>(stage)].size()) continue;
            const auto [micro, backward, piece] = passes[static_cast<size_t>(stage)][at];
            const int number = piece * stages + stage;
            const bool ready = backward ? made.count({micro, number, false}) &&
                                              (number == last || made.count({micro, number + 1, true}))
                                        : number == 0 || made.count({micro, number - 1, false});
            if (!ready) continue;
            EXPECT_TRUE(made.insert({micro, number, backward}).second);
            auto& held = kept[static_cast<size_t>(stage)];
            backward ? --held : ++held;
            EXPECT_LE(static_cast<int64_t>(held), passes_kept(stage, stages, micro_batches, pieces));
            ++at, moves = true;
          }
        }
        EXPECT_EQ(std::ssize(made), 2 * micro_batches * (last + 1)) << stages << " " << pieces << " " << micro_batches;
      }
}

TEST(Stages, HoldAllOfAParameterOrNothing) {
  const Cut cut = stage_cut({0, 2});
  const std::vector<Range> whole = {{0, 6}, {0, 4}}, nothing = {{0, 0}, {0, 4}};
  for (int stage = 0; stage < 3; ++stage)
    EXPECT_EQ(local_part({6, 4}, {cut}, MeshLayout({.pp = 3}, 3, stage)), stage == 1 ? nothing : whole);
  const Cut rows{Axis::Tp, 0};
  EXPECT_EQ(local_part({6, 4}, {rows, stage_cut({1})}, MeshLayout({.pp = 2, .tp = 2}, 4, 3)),
            (std::vector<Range>{{3, 3}, {0, 4}}));
}

}  // namespace
}  // namespace apus
