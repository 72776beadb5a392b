// SPDX-License-Identifier: Apache-2.0
// Known questions about pictures: rows as their authors publish them. Marks of numbers, charts and words of ten people
// are those that lmms-eval's own functions gave.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reward/benchmark.h"
#include "tests/refusal.h"

namespace apus {
namespace {

double mark(const char* set, const Json& row, const std::string& answer) {
  const Benchmark& one = benchmark_named(set);
  return one.judge(one.read(row), row, answer);
}
BenchmarkItem item(const char* set, const Json& row) { return benchmark_named(set).read(row); }

TEST(PictureSets, MmmuChoosesOrWrites) {
  Json row = {{"id", "validation_Art_Theory_3"},
              {"question", "Which of <image 2> and <image 1> is older?"},
              {"options", "['<image 1>', \"the second's\", 'both']"},
              {"question_type", "multiple-choice"},
              {"answer", "B"},
              {"image_1", "a.png"},
              {"image_2", "b.png"},
              {"image_3", nullptr}};
  const BenchmarkItem asked = item("mmmu", row);
  EXPECT_EQ(asked.question, "Which of <image> and <image> is older?");
  EXPECT_EQ(asked.choices, (std::vector<std::string>{"<image>", "the second's", "both"}));
  EXPECT_EQ(asked.images, (std::vector<Json>{"b.png", "a.png", "a.png"}));  // where the texts show them
  EXPECT_EQ(asked.group, "Art_Theory");
  EXPECT_EQ(mark("mmmu", row, "The answer is B."), 1);
  EXPECT_EQ(mark("mmmu", row, "A"), 0);
  row["question"] = "Which of <image 3>?";
  test::expect_says(test::refusal(Fault::Data, [&] { item("mmmu", row); }), "<image 3>");

  row = {{"question", "What is it?"}, {"options", "[]"}, {"question_type", "open"}, {"image_1", "a.png"}};
  for (const auto& [right, said, worth] : {std::tuple{"24.5", "The answer is 24.5.", 1},
                                           {"24.5", "It is 24.50 meters", 1},
                                           {"1,200", "So x = 1200", 1},
                                           {"The spine", "the spine", 1},
                                           {"sine", "It could be a sine wave", 1},
                                           {"['24/7', '3.429']", "3.43", 1},
                                           {"7", "There are 7 apples and 8 pears", 1},
                                           {"7", "8", 0},
                                           {"x", "extra", 0},
                                           {"cat", "a dog", 0}}) {
    row["answer"] = right;
    EXPECT_EQ(mark("mmmu", row, said), worth) << right << " / " << said;
  }
  EXPECT_EQ(item("mmmu", row).question.substr(0, 18), "<image>What is it?");
}

TEST(PictureSets, MathVistaRoundsAsTheRowSays) {
  Json row = {{"question", "How much?"},
              {"query", "Hint: two decimals.\nQuestion: How much?"},
              {"answer", "1.25"},
              {"answer_type", "float"},
              {"precision", 2.0},
              {"choices", nullptr},
              {"image", "images/1.jpg"},
              {"decoded_image", {{"bytes", "data:image/png;base64,AA=="}}},
              {"metadata", {{"task", "textbook question answering"}}}};
  EXPECT_EQ(item("math_vista", row).images, std::vector<Json>{row["decoded_image"]});
  EXPECT_EQ(item("MathVista_MINI", row).group, "textbook question answering");
  EXPECT_EQ(mark("math_vista", row, "It is 1.254"), 1);
  EXPECT_EQ(mark("math_vista", row, "1.26"), 0);
  EXPECT_EQ(mark("math_vista", row, "no idea"), 0);
  row["answer_type"] = "integer", row["answer"] = "3";
  EXPECT_EQ(mark("math_vista", row, "3.0"), 1);
  row["choices"] = {"yes", "no"}, row["answer"] = "no";
  EXPECT_EQ(mark("math_vista", row, "B"), 1);
  EXPECT_EQ(mark("math_vista", row, "(A)"), 0);
}

TEST(PictureSets, WhatIsReadInPictures) {
  Json row = {
      {"question", "what is written?"}, {"answer", {"CENTRE", "Center"}}, {"dataset", "IIIT5K"}, {"image", "a"}};
  EXPECT_EQ(mark("OCRBench", row, "It says: centre."), 1);
  EXPECT_EQ(mark("OCRBench", row, "cent"), 0);
  row["dataset"] = "HME100k", row["answer"] = "x ^ 2";
  EXPECT_EQ(mark("OCRBench", row, "x^2 + 1"), 1);
  EXPECT_EQ(mark("OCRBench", row, "X^2"), 0);
  row = {{"question", "who?"}, {"answers", {"T.F. Riehl", "Riehl"}}, {"image", "a"}};
  EXPECT_EQ(mark("docvqa", row, "t.f. riehl"), 1);
  EXPECT_NEAR(mark("DocVQA_VAL", row, "Rieh"), 0.8, 1e-12);
  EXPECT_EQ(mark("infovqa", row, "somebody"), 0);
}

TEST(PictureSets, ChartsWithinATwentieth) {
  for (const auto& [said, right, worth] : {std::tuple{"12", "12.5", 1},
                                           {"12", "12.7", 0},
                                           {"5%", "0.05", 1},
                                           {"Yes", "yes", 1},
                                           {"3.0", "3", 1},
                                           {"0", "0", 1},
                                           {"1,000", "1000", 0},
                                           {"96%", "0.92", 1},
                                           {"-5", "-5.2", 1},
                                           {"nan", "1", 0}})
    EXPECT_EQ(mark("chartqa", {{"question", "q"}, {"answer", right}, {"image", "a"}}, said), worth) << said;
}

TEST(PictureSets, TenPeoplesWords) {
  const auto people = [](std::initializer_list<std::pair<const char*, int>> words) {
    Json all = Json::array();
    for (const auto& [word, count] : words)
      for (int i = 0; i < count; ++i) all.push_back(word);
    return Json{{"question", "q"}, {"answers", all}, {"image", "a"}};
  };
  EXPECT_NEAR(mark("textvqa", people({{"stop", 10}}), "Stop."), 1, 1e-12);
  EXPECT_NEAR(mark("textvqa", people({{"stop", 2}, {"yield", 8}}), "the stop"), 0.6, 1e-12);
  EXPECT_NEAR(mark("textvqa", people({{"two", 4}, {"2", 6}}), "2"), 1, 1e-12);
  EXPECT_NEAR(mark("textvqa", people({{"1,000", 10}}), "1000"), 1, 1e-12);
  EXPECT_NEAR(mark("textvqa", people({{"3.5", 10}}), "3.5"), 1, 1e-12);
  EXPECT_NEAR(mark("textvqa", people({{"it's", 10}}), "its"), 0, 1e-12);
  EXPECT_NEAR(mark("textvqa", people({{"new york", 3}, {"ny", 7}}), "New York!"), 0.9, 1e-12);
  EXPECT_NEAR(mark("textvqa", people({{"coca-cola", 10}}), "coca cola"), 1, 1e-12);
  EXPECT_NEAR(mark("textvqa", people({{"yes", 10}}), "Yes, it is"), 0, 1e-12);
  EXPECT_NEAR(mark("textvqa", people({{"none", 10}}), "zero"), 1, 1e-12);
}

TEST(PictureSets, ChoicesInColumnsListsAndTexts) {
  Json row = {{"question", "Which?"}, {"A", "red"},    {"B", "blue"},         {"C", "nan"},  {"D", nullptr},
              {"answer", "B"},        {"hint", "nan"}, {"category", "color"}, {"image", "a"}};
  EXPECT_EQ(item("MMBench_DEV_EN", row).choices.size(), 2U);
  EXPECT_EQ(item("mm_bench", row).question, "<image>Which?");
  EXPECT_EQ(mark("mm_bench", row, "B"), 1);
  row = {{"question", "Which?"}, {"options", {"a", "b", "c"}}, {"answer", "2"}, {"image", "a"}};
  EXPECT_EQ(mark("AI2D_TEST", row, "C"), 1);
  row = {{"question", "Which?\nOptions: A: one, B: two"}, {"answer", "B"}, {"category", "math"}, {"image", "a"}};
  EXPECT_EQ(mark("MMStar", row, "B: two"), 1);
  EXPECT_EQ(mark("MMStar", row, "A"), 0);
  EXPECT_EQ(mark("MMStar", row, "..."), 0);
  row = {
      {"question", "How many? Please answer directly with a single word or number."}, {"answer", "2"}, {"image", "a"}};
  EXPECT_EQ(mark("realWorldQA", row, "2."), 1);
  row = {{"question", "Is there a dog?"}, {"answer", "no"}, {"category", "popular"}, {"image", "a"}};
  EXPECT_EQ(mark("pope", row, "No, there is not."), 1);
  EXPECT_EQ(mark("pope", row, "Nothing"), 0);
  row = {{"question", "<image> or <image>?"}, {"options", "[\"x\", \"y\"]"}, {"answer", "A"}, {"images", {"a", "b"}}};
  EXPECT_EQ(mark("general_vmcq", row, "A"), 1);
  row = {{"query", "Name it."}, {"response", "A cat"}, {"images", {"a"}}};
  EXPECT_EQ(mark("general_vqa", row, "a cat."), 1);
  test::expect_says(test::refusal(Fault::Data,
                                  [&] {
                                    item("general_vqa", {{"query", "q"}, {"response", "r"}});
                                  }),
                    "the row has no picture");
}

TEST(PictureSets, EachPersonsWordsForABoxAreAQuestion) {
  const Benchmark& set = benchmark_named("RefCOCO_val");
  const Json row = {{"answer", {"left dog", "dog"}}, {"bbox", {10, 20, 30, 40}}, {"image", "a"}};
  const auto items = set.read_several(row);
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(items[0].solution, "[10.0,20.0,40.0,60.0]");
  EXPECT_TRUE(set.boxes);
  EXPECT_EQ(set.judge(items[0], row, "[[10, 20, 40, 60]]"), 1);
  EXPECT_EQ(set.judge(items[0], row, "[10, 20, 40, 39]"), 0);
  EXPECT_EQ(set.judge(items[0], row, "nowhere"), 0);
}

}  // namespace
}  // namespace apus
