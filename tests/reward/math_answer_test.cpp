// SPDX-License-Identifier: Apache-2.0
// Which answers are the one that was asked for: a table.
#include "reward/math_answer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "base/json.h"
#include "tests/paths.h"

namespace apus {
namespace {

TEST(MathAnswers, AreFoundInTheText) {
  EXPECT_EQ(math_result("<think>\\boxed{1}"), "");
  EXPECT_EQ(math_result("<think>so 1</think> \\boxed{2}"), "2");
  EXPECT_EQ(math_result("so it is \\boxed{\\frac{1}{2}} and \\boxed{3}."), "3");
  EXPECT_EQ(math_result("so it is $\\boxed{\\frac{1}{2}}$."), "\\frac{1}{2}");
  EXPECT_EQ(math_result("\\boxed{\\text{a } \\{1, 2\\}}"), "\\text{a } \\{1, 2\\}");
  EXPECT_EQ(math_result("\\boxed 5 apples"), "5");
  EXPECT_EQ(math_result("\\fbox{7}"), "7");
  EXPECT_EQ(math_result("<think>\\boxed{1}</think><answer>2</answer>"), "2");
  EXPECT_EQ(math_result("<answer>it is \\boxed{4}</answer>"), "4");
  EXPECT_EQ(math_result("48/2 = 24\n#### 72"), "72");
  EXPECT_EQ(math_result("The final answer is: 42"), "42");
  EXPECT_EQ(math_result("Answer: 17 apples\n"), "17 apples");
  EXPECT_EQ(math_result("we get $x=3$ at last"), "x=3");
  EXPECT_EQ(math_result("12"), "12");
  EXPECT_EQ(math_result("\\boxed{never closed"), "\\boxed{never closed");
}

// math_answers.jsonl: {"said", "solution", "same"}. Where math-verify says something else the file's neighbour in
// tests/peers names it.
TEST(MathAnswers, AreWhatTheTableSays) {
  std::ifstream in(test::source_dir() / "tests/reward/math_answers.jsonl");
  int pairs = 0;
  for (std::string line; std::getline(in, line); ++pairs) {
    const Json pair = parse_json(line, "math_answers.jsonl", Fault::Data);
    const std::string said = pair.at("said"), solution = pair.at("solution");
    EXPECT_EQ(same_math_answer(said, solution), pair.at("same").get<bool>()) << said << "   |   " << solution;
  }
  EXPECT_GE(pairs, 400);
}

TEST(MathAnswers, BoundWhatTheyRead) {
  const auto begin = std::chrono::steady_clock::now();
  for (const std::string& bad :
       {std::string(1 << 20, '('), std::string(1 << 20, '1'), std::string(1 << 20, '{'), std::string(100000, '-') + "1",
        "\\boxed{" + std::string(1 << 20, '\\') + "}", std::string(1 << 20, ','), std::string(1 << 20, ' ') + "1"}) {
    same_math_answer(bad, "42");
    same_math_answer("42", bad);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace apus
