// SPDX-License-Identifier: Apache-2.0
// Which rows `apus score` is to read, and how formats of GGUF files may be spelt.
#include <gtest/gtest.h>

#include "base/files.h"
#include "cli/score.h"
#include "gguf/mix.h"
#include "tests/folder.h"
#include "tests/refusal.h"

namespace apus {
namespace {

TEST(ScoreOptions, ANumberBehindANameTakesItsFirstRows) {
  const test::Folder folder;
  const std::string rows = (folder.path / "rows.jsonl").string(), odd = (folder.path / "rows#2").string();
  for (const std::string& file : {rows, odd}) write_file_atomic(file, "{}\n");
  ScoreOptions o;
  o.dataset = {rows + "#2", rows, odd, "-"};
  const auto files = o.files();
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files[0].path, rows);
  EXPECT_EQ(files[0].rows, 2);
  EXPECT_FALSE(files[1].rows);
  EXPECT_EQ(files[2].path, odd);
  EXPECT_FALSE(files[2].rows);
  EXPECT_EQ(files[3].path, "-");
  o.dataset = {rows + "#many"};
  test::expect_says(test::refusal(Fault::Usage, [&] { o.files(); }), "behind # a number of rows is wanted");
}

TEST(GgufMix, IsSpeltInCapitalsOrNot) {
  ASSERT_NE(find_mix("q8_0"), nullptr);
  EXPECT_EQ(find_mix("Q8_0"), find_mix("q8_0"));
  EXPECT_EQ(find_mix("Q4_K_m"), find_mix("q4_k_m"));
  EXPECT_EQ(find_mix("q9"), nullptr);
}

}  // namespace
}  // namespace apus
