// SPDX-License-Identifier: Apache-2.0
// Which answers are the one that was asked for: a table.
#include "reward/math_answer.h"

#include <gtest/gtest.h>

#include <chrono>

namespace apus {
namespace {

struct Pair {
  const char *said, *solution;
};

void expect_all(const std::vector<Pair>& pairs, bool same) {
  for (const Pair& p : pairs)
    EXPECT_EQ(same_math_answer(p.said, p.solution), same) << p.said << "   |   " << p.solution;
}

TEST(MathAnswers, AreFoundInTheText) {
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

TEST(MathAnswers, ThatAreTheSame) {
  expect_all({{"42", "42"},
              {"42.0", "42"},
              {"042", "42"},
              {"+42", "42"},
              {"-3", "-3.0"},
              {"−3", "-3"},
              {".5", "0.5"},
              {"1/2", "0.5"},
              {"\\frac{1}{2}", "0.5"},
              {"\\dfrac{1}{2}", "\\frac12"},
              {"\\tfrac{1}{2}", "1/2"},
              {"\\frac12", "\\frac{1}{2}"},
              {"\\frac{2}{4}", "\\frac{1}{2}"},
              {"-\\frac{1}{2}", "\\frac{-1}{2}"},
              {"\\frac{1}{-2}", "-0.5"},
              {"½", "0.5"},
              {"1\\frac{1}{2}", "1.5"},
              {"1 1/2", "\\frac{3}{2}"},
              {"2 3/4", "11/4"},
              {"1,234", "1234"},
              {"1,234,567", "1234567"},
              {"1{,}234", "1234"},
              {"$1,000", "1000"},
              {"\\$12.50", "12.5"},
              {"12 dollars", "\\$12"},
              {"50%", "50"},
              {"50\\%", "0.5"},
              {"50%", "50\\%"},
              {"50 percent", "50%"},
              {"0.333333333", "\\frac{1}{3}"},
              {"3.2 \\times 10^5", "320000"},
              {"3.2e5", "320000"},
              {"10^{-3}", "0.001"},
              {"2^{10}", "1024"},
              {"x^10", "x^{10}"},
              {"5!", "120"},
              {"\\binom{5}{2}", "10"},
              {"\\sqrt{8}", "2\\sqrt{2}"},
              {"\\sqrt2", "\\sqrt{2}"},
              {"√2", "\\sqrt{2}"},
              {"\\sqrt[3]{27}", "3"},
              {"\\frac{\\sqrt{3}}{3}", "\\frac{1}{\\sqrt{3}}"},
              {"2\\pi", "6.283185307"},
              {"π", "\\pi"},
              {"\\frac{\\pi}{2}", "\\pi/2"},
              {"e^2", "7.389056099"},
              {"\\ln e", "1"},
              {"\\log_2 8", "3"},
              {"\\log_{10}(100)", "2"},
              {"\\sin(\\pi/6)", "0.5"},
              {"\\cos 0", "1"},
              {"\\sin^2 x + \\cos^2 x", "1"},
              {"|{-3}|", "3"},
              {"\\left|-3\\right|", "3"},
              {"x=5", "5"},
              {"x = 5", "x=5"},
              {"y = 2x+1", "2x + 1"},
              {"f(x) = x^2", "x^2"},
              {"2x+1", "1+2x"},
              {"(x+1)^2", "x^2+2x+1"},
              {"(x-1)(x+1)", "x^2-1"},
              {"\\frac{x^2-1}{x-1}", "x+1"},
              {"2(3+x)", "6+2x"},
              {"ab", "b \\cdot a"},
              {"a * b", "ab"},
              {"x + y = 2", "2x + 2y = 4"},
              {"y = 3x - 2", "y=3x-2"},
              {"2y = 6x - 4", "y = 3x - 2"},
              {"5 cm", "5"},
              {"5\\text{ cm}", "5 cm"},
              {"5\\,\\text{cm}^2", "5"},
              {"10km/h", "10"},
              {"30 \\text{ inches}", "30 inch"},
              {"12 apples", "12"},
              {"45^\\circ", "45"},
              {"45°", "45^{\\circ}"},
              {"90 degrees", "90"},
              {"7 m", "7"},
              {"(1, 2)", "(1,2)"},
              {"(1,2)", "\\left(1, 2\\right)"},
              {"(\\frac{1}{2}, 3)", "(0.5, 3)"},
              {"[0, 1)", "[0,1)"},
              {"(-\\infty, 3)", "(-∞,3)"},
              {"(-\\infty, -1) \\cup (1, \\infty)", "(1,\\infty)\\cup(-\\infty,-1)"},
              {"x > 3", "(3, \\infty)"},
              {"x \\ge 3", "[3,\\infty)"},
              {"x < 3", "(-\\infty,3)"},
              {"3 < x", "(3,\\infty)"},
              {"1 < x \\le 5", "(1,5]"},
              {"1 \\leq x < 5", "[1, 5)"},
              {"\\{1,2,3\\}", "\\{3,2,1\\}"},
              {"1, 2, 3", "\\{1,2,3\\}"},
              {"3,1,2", "1,2,3"},
              {"1 and 2", "1,2"},
              {"x=1 or x=2", "1, 2"},
              {"\\pm 3", "3, -3"},
              {"x = \\pm\\sqrt{2}", "\\sqrt{2}, -\\sqrt{2}"},
              {"±2", "-2, 2"},
              {"\\{5\\}", "5"},
              {"\\begin{pmatrix}1 & 2\\\\3 & 4\\end{pmatrix}", "\\begin{pmatrix} 1&2\\\\ 3&4 \\end{pmatrix}"},
              {"\\begin{bmatrix}0.5\\\\1\\end{bmatrix}", "\\begin{pmatrix}\\frac12\\\\1\\end{pmatrix}"},
              {"\\text{(A)}", "A"},
              {"(B)", "B"},
              {"B.", "\\text{B}"},
              {"Yes", "yes"},
              {"\\text{east}", "East"},
              {"Evelyn", "\\text{Evelyn}"},
              {"\\varnothing", "\\emptyset"},
              {"\\infty", "∞"},
              {"The answer is 42.", "42"},
              {"I think it must be 18", "18"},
              {"So she has $18 left.", "#### 18"},
              {"<answer>12</answer>", "#### 12"},
              {"**Answer:** 7", "7"},
              {"The answer is $\\frac{3}{4}$.", "0.75"},
              {"\\boxed{x=4}", "4"},
              {"\\[ 12 \\]", "12"},
              {"\\(12\\)", "12"},
              {"\\displaystyle\\frac{1}{3}", "1/3"},
              {"\\frac{1}{72}", "\\frac1{72}"},
              {"3\\cdot 4", "12"},
              {"2 \\div 4", "0.5"},
              {"a_1 + a_2", "a_2+a_1"},
              {"\\alpha+\\beta", "\\beta + \\alpha"},
              {"2+3i", "3i + 2"},
              {"-0", "0"},
              {"1e3", "1000"},
              {"0.10", "0.1"},
              {"\\frac{3\\sqrt{2}}{2}", "\\frac{3}{\\sqrt{2}}"},
              {"2\\sqrt{3}+1", "1 + 2\\sqrt{3}"},
              {"x^{-1}", "\\frac{1}{x}"},
              {"8\\%", "8"}},
             true);
}

TEST(MathAnswers, ThatDiffer) {
  expect_all({{"41", "42"},
              {"4", "42"},
              {"420", "42"},
              {"-42", "42"},
              {"42.1", "42"},
              {"1/3", "0.3"},
              {"\\frac{1}{2}", "\\frac{2}{1}"},
              {"1\\frac{1}{2}", "\\frac{1}{2}"},
              {"50%", "5"},
              {"1,2", "12"},
              {"1,234", "1.234"},
              {"2\\sqrt{2}", "\\sqrt{2}"},
              {"x+1", "x-1"},
              {"x^2", "2x"},
              {"2x", "2y"},
              {"5 cm", "5 m"},
              {"(1,2)", "(2,1)"},
              {"[0,1]", "[0,1)"},
              {"(0,1)", "[0,1]"},
              {"(-\\infty,3)", "(-\\infty,3]"},
              {"x > 3", "[3,\\infty)"},
              {"x > 3", "(-\\infty,3)"},
              {"\\{1,2\\}", "\\{1,2,3\\}"},
              {"1,2,2", "1,2,3"},
              {"3", "3,-3"},
              {"\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "\\begin{pmatrix}1&2&3&4\\end{pmatrix}"},
              {"\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix}2\\\\1\\end{pmatrix}"},
              {"A", "B"},
              {"yes", "no"},
              {"", "42"},
              {"I do not know", "42"},
              {"\\boxed{}", "42"},
              {"\\boxed{41}, not 42", "42"},
              {"<answer>41</answer> 42", "42"},
              {"y = 2x+1", "y = 2x-1"},
              {"x + y = 2", "x + y = 3"},
              {"\\infty", "-\\infty"},
              {"5", "\\text{five}"},
              {"1/0", "42"},
              {"x", "42"}},
             false);
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
