// SPDX-License-Identifier: Apache-2.0
// The rows of a run that answers them: what a judge is given, and what its opinion becomes.
#include "data/results/row_book.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/folder.h"

namespace apus {
namespace {

TEST(RowBook, AJudgeSeesTheRowItsSolutionAndTheAnswer) {
  const test::Folder folder;
  const auto rows = folder.path / "rows.jsonl";
  write_file_atomic(rows,
                    R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "id": 1}
{"messages": [{"role": "user", "content": "c"}], "solution": "d"}
{"messages": [{"role": "user", "content": "e"}]}
)");
  std::vector<RowBook::Judged> seen;
  std::vector<std::string> heard;
  RowBook book({.rows = {{.files = {rows.string()}}},
                .path = (folder.path / "answers.jsonl").string(),
                .metric = "external:./reward.py",
                .judge =
                    [&](const std::vector<RowBook::Judged>& answers) {
                      seen.insert(seen.end(), answers.begin(), answers.end());
                      return std::vector<double>{1, 0.5, NAN};
                    },
                .on_answer = [&](const Json&, const Json& record) { heard.push_back(record["response"]); }});
  book.begin();
  while (const auto question = book.next()) book.answer(book.row(), *question, {.response = "x"});
  EXPECT_TRUE(seen.empty()) << "a program is started seldom";
  testing::internal::CaptureStdout();
  book.finish(1);
  const std::string said = testing::internal::GetCapturedStdout();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].row["solution"], "b");
  EXPECT_EQ(seen[0].row["id"], 1);
  EXPECT_EQ(seen[1].row["solution"], "d");
  EXPECT_FALSE(seen[2].row.contains("solution"));
  EXPECT_EQ(seen[2].answer, "x");
  EXPECT_NE(said.find(R"({"reward":0.75})"), std::string::npos) << said << "no opinion counts nothing";
  EXPECT_EQ(heard, std::vector<std::string>(3, "x"));
}

}  // namespace
}  // namespace apus
