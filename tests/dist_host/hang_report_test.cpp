// SPDX-License-Identifier: Apache-2.0
// Who is named when ranks wait in vain.
#include "dist/launch/hang_report.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace apus {
namespace {

CommCall sum_of_three(int rank, int64_t number) {
  CommCall call{.group = "host", .op = "all_reduce", .peers = {}, .counter = "host", .number = number, .bytes = 2048};
  for (int r = 0; r < 3; ++r)
    if (r != rank) call.peers.push_back(r);
  return call;
}

RankCalls waits_in(int rank, const CommCall& call) {
  return {.rank = rank, .where = "step 5", .waits = {call}, .last = {}, .begun = {{call.counter, call.number}}};
}

TEST(HangReport, NamesTheRankThatIsSilent) {
  RankCalls stopped = waits_in(1, sum_of_three(1, 41));  // it was stopped in the middle of the same call
  stopped.heard = false;
  EXPECT_EQ(hang_report({waits_in(0, sum_of_three(0, 41)), stopped, waits_in(2, sum_of_three(2, 41))}),
            "what the ranks do:\n"
            "  rank 0: waiting in all_reduce 41 of 'host', 2.00 KiB with ranks 1, 2, at step 5\n"
            "  rank 1: silent: stopped, or cut off, at step 5; its last word is that it waits in all_reduce 41 of "
            "'host', 2.00 KiB with ranks 0, 2\n"
            "  rank 2: waiting in all_reduce 41 of 'host', 2.00 KiB with ranks 0, 1, at step 5\n"
            "in the end all wait for rank 1");
}

TEST(HangReport, NamesTheRankThatIsBusyBehindAnotherThatWaits) {
  RankCalls busy{.rank = 2, .where = "step 4", .waits = {}, .last = {sum_of_three(2, 40)}, .begun = {{"host", 40}}};
  const CommCall from_two{.group = "down", .op = "recv", .peers = {2}, .counter = "down 2>0", .number = 7, .bytes = 64};
  const std::string report = hang_report({waits_in(0, from_two), waits_in(1, sum_of_three(1, 41)), busy});
  EXPECT_NE(report.find("rank 0: waiting in recv 7 of 'down', 64 B from rank 2, at step 5"), std::string::npos)
      << report;
  EXPECT_NE(report.find("rank 2: alive, and in no collective: busy, or stuck elsewhere, at step 4; before it ended "
                        "all_reduce 40 of 'host'"),
            std::string::npos)
      << report;
  EXPECT_NE(report.find("in the end all wait for rank 2"), std::string::npos) << report;
}

TEST(HangReport, SaysWhenRanksWaitForEachOther) {
  const CommCall there{.group = "a", .op = "recv", .peers = {1}, .counter = "a 1>0", .number = 1, .bytes = 8},
      back{.group = "a", .op = "recv", .peers = {0}, .counter = "a 0>1", .number = 1, .bytes = 8};
  EXPECT_NE(hang_report({waits_in(0, there), waits_in(1, back)}).find("wait for each other"), std::string::npos);
}

TEST(HangReport, RanksThatDoTheSameAreOneLine) {
  std::vector<RankCalls> ranks;
  for (int r = 0; r < 512; ++r) {
    CommCall call{.group = "host", .op = "barrier", .peers = {}, .counter = "host", .number = 3, .bytes = 0};
    call.peers = {511};
    ranks.push_back(waits_in(r, call));
  }
  ranks[511].waits.clear(), ranks[511].begun["host"] = 2;
  const std::string report = hang_report(ranks);
  EXPECT_NE(report.find("ranks 0-510: waiting in barrier 3"), std::string::npos) << report;
  EXPECT_NE(report.find("all wait for rank 511"), std::string::npos) << report;
  EXPECT_LT(report.size(), 400u);
}

TEST(HangReport, WhatRanksTellComesBack) {
  RankCalls calls = waits_in(2, sum_of_three(2, 9));
  calls.last = {sum_of_three(2, 8)};
  const RankCalls read = rank_calls(to_json(calls));
  EXPECT_EQ(to_json(read), to_json(calls));
  EXPECT_EQ(hang_report({read}), hang_report({calls}));
  EXPECT_THROW(rank_calls(Json{{"rank", 1}}), Error);
}

}  // namespace
}  // namespace apus
