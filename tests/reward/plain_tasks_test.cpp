// SPDX-License-Identifier: Apache-2.0
// Questions as lm-evaluation-harness puts them. tests/peers/harness.py asks the harness itself.
#include "reward/plain_tasks.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace apus {
namespace {

BenchmarkItem asked(const char* name, const char* row) {
  const Json value = Json::parse(row);
  BenchmarkItem item = benchmark_named(name).read(value);
  item.plain = plain_task(name).read(item, value);
  return item;
}

double mark(const char* name, const char* row, const std::string& text, size_t metric = 0) {
  const Json value = Json::parse(row);
  const PlainTask& task = plain_task(name);
  return task.metrics[metric].judge(asked(name, row), value, text_until(text, task.until));
}

TEST(PlainTasks, LettersAndWords) {
  const char* const mmlu =
      R"({"question": " Which? ", "subject": "high_school_law", "choices": ["red", "blue"], "answer": 1})";
  const BenchmarkItem letters = asked("mmlu", mmlu);
  EXPECT_EQ(plain_prompt(letters, {letters}),
            "The following are multiple choice questions (with answers) about high school law.\n\n"
            "Which?\nA. red\nB. blue\nAnswer: B\n\nWhich?\nA. red\nB. blue\nAnswer:");
  EXPECT_EQ(letters.plain.choices, (std::vector<std::string>{"A", "B"}));
  const BenchmarkItem words = asked(
      "arc", R"({"question": "Why?", "choices": {"text": ["so", "not so"], "label": ["A", "B"]}, "answerKey": "A"})");
  EXPECT_EQ(plain_prompt(words, {words}), "Question: Why?\nAnswer: so\n\nQuestion: Why?\nAnswer:");
  EXPECT_EQ(words.plain.choices[1], "not so");
}

TEST(PlainTasks, EndingsAndGaps) {
  const BenchmarkItem ends = asked("hellaswag", R"({"activity_label": "Baking", "ctx_a": "A man [header] sits.  Now",
      "ctx_b": "he TAKES", "ctx": "", "endings": [" a [step] loaf ", "it [title] Then"], "label": "0"})");
  EXPECT_EQ(plain_prompt(ends, {}), "Baking: A man sits. Now He takes");
  EXPECT_EQ(ends.plain.choices, (std::vector<std::string>{"a loaf", "it. Then"}));
  const BenchmarkItem gap = asked(
      "winogrande", R"({"sentence": "Ann saw Bob so _ hid.", "option1": "Ann", "option2": "Bob", "answer": "2"})");
  EXPECT_EQ(plain_prompt(gap, {}, 0), "Ann saw Bob so Ann");
  EXPECT_EQ(plain_prompt(gap, {gap}, 1), "Ann saw Bob so Bob hid.\n\nAnn saw Bob so Bob");
  EXPECT_THROW(asked("winogrande", R"({"sentence": "x", "option1": "a", "option2": "b", "answer": "1"})"), Error);
}

TEST(PlainTasks, NumbersAreFoundInTwoWays) {
  const char* const row = R"({"question": "How many?", "answer": "1000 + 12 = 1012\n#### 1,012"})";
  for (const auto& [text, strict, flexible] :
       std::vector<std::tuple<const char*, double, double>>{{"it is\n#### 1012", 1, 1},
                                                            {"#### 1,012. Or 7", 1, 0},
                                                            {"so $1,012.", 0, 1},
                                                            {"1012 Question: 5", 0, 1},
                                                            {"#### twelve", 0, 0},
                                                            {"#### -1012", 0, 0},
                                                            {"there are 1012 of them and - no more", 0, 1},
                                                            {"", 0, 0}}) {
    EXPECT_EQ(mark("gsm8k", row, text, 0), strict) << text;
    EXPECT_EQ(mark("gsm8k", row, text, 1), flexible) << text;
  }
  EXPECT_EQ(mark("gsm8k", R"({"question": "q", "answer": "#### 5"})", "5", 1), 1);
}

TEST(PlainTasks, WhatIsNotKnownIsRefused) {
  EXPECT_THROW(plain_task("math_500"), Error);
  EXPECT_EQ(std::string(plain_task("ARC-c").name), "arc");
}

}  // namespace
}  // namespace apus
