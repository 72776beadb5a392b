// SPDX-License-Identifier: Apache-2.0
// Rows as their authors publish them, and which answers are right.
#include "reward/benchmark.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "reward/instructions.h"

namespace apus {
namespace {

BenchmarkItem item_of(const char* name, const char* row) { return benchmark_named(name).read(Json::parse(row)); }
double mark_of(const char* name, const char* row, const std::string& answer) {
  const Json value = Json::parse(row);
  const Benchmark& benchmark = benchmark_named(name);
  return benchmark.judge(benchmark.read(value), value, answer);
}

TEST(Benchmarks, RowsAsTheyArePublished) {
  const auto mmlu =
      item_of("mmlu", R"({"question": "q", "subject": "law", "choices": ["a","b","c","d"], "answer": 2})");
  EXPECT_EQ(mmlu.right, 2u);
  EXPECT_EQ(mmlu.group, "law");
  const auto ceval = item_of("ceval", R"({"id": 0, "question": "q", "A": "1", "B": "2", "C": "3", "D": "4",
                                        "answer": "D", "explanation": ""})");
  EXPECT_EQ(ceval.right, 3u);
  EXPECT_EQ(ceval.choices.size(), 4u);
  EXPECT_EQ(item_of("cmmlu", R"({"Question": "q", "A": "1", "B": "2", "C": "3", "D": "4", "Answer": "B"})").right, 1u);
  const auto arc = item_of("ARC-c", R"({"id": "x", "question": "q", "choices": {"text": ["w","x","y","z"],
                                        "label": ["1","2","3","4"]}, "answerKey": "3"})");
  EXPECT_EQ(arc.right, 2u);
  const auto hella = item_of("hellaswag", R"({"ctx": "A man", "endings": ["a","b","c","d"], "label": "1"})");
  EXPECT_EQ(hella.right, 1u);
  EXPECT_EQ(item_of("winogrande", R"({"sentence": "_ x", "option1": "a", "option2": "b", "answer": "2"})").right, 1u);
  EXPECT_EQ(item_of("math", R"({"problem": "p", "solution": "\\boxed{3}", "level": "Level 5"})").group, "Level 5");
  EXPECT_THROW(item_of("mmlu", R"({"question": "q", "choices": ["a","b"], "answer": 2})"), Error);
  EXPECT_THROW(item_of("gsm8k", R"({"problem": "q"})"), Error);
}

TEST(Benchmarks, TheQuestionAsItIsPut) {
  const auto item = item_of("mmlu", R"({"question": "Which?", "choices": ["red","blue"], "answer": 0})");
  EXPECT_EQ(asked_text(item), "Which?\n\nA. red\nB. blue\n\nAnswer with the letter of the right choice alone.");
}

TEST(Benchmarks, TheChoiceThatAnAnswerNames) {
  const std::vector<std::string> choices = {"red", "green", "blue", "white"};
  const auto letter = [&](const std::string& answer) {
    const auto found = chosen(answer, choices);
    return found ? std::string(1, choice_letter(*found)) : "";
  };
  EXPECT_EQ(letter("B"), "B");
  EXPECT_EQ(letter("(C)"), "C");
  EXPECT_EQ(letter("B. green"), "B");
  EXPECT_EQ(letter("The answer is (D)."), "D");
  EXPECT_EQ(letter("I first thought of A, but the answer is C"), "C");
  EXPECT_EQ(letter("$\\boxed{A}$"), "A");
  EXPECT_EQ(letter("答案是B。"), "B");
  EXPECT_EQ(letter("Blue."), "C");
  EXPECT_EQ(letter("It must be D here"), "D");
  EXPECT_EQ(letter("A man knows nothing"), "");
  EXPECT_EQ(letter("either B or C"), "");
  EXPECT_EQ(letter("E"), "");
}

TEST(Benchmarks, RightAndWrong) {
  const char* gsm = R"({"question": "q", "answer": "2 + 40 = 42\n#### 42"})";
  EXPECT_EQ(mark_of("gsm8k", gsm, "So it is 42."), 1);
  EXPECT_EQ(mark_of("gsm8k", gsm, "<think>42</think>The answer is 41"), 0);
  EXPECT_EQ(mark_of("mmlu", R"({"question": "q", "choices": ["a","b"], "answer": 1})", "<think>A?</think>B"), 1);
  EXPECT_EQ(mark_of("general_qa", R"({"query": "q", "response": "The Sea"})", "the sea."), 1);
}

TEST(Benchmarks, UnknownOnesAreRefusedWithWords) {
  try {
    benchmark_named("mbpp");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.at.fault, Fault::Usage);
    EXPECT_NE(std::string(e.what()).find("humaneval"), std::string::npos) << e.what();
  }
}

TEST(Instructions, EachIsFollowedOrNot) {
  struct One {
    const char *id, *settings, *good, *bad;
  };
  for (const One& one : std::vector<One>{
           {"keywords:existence", R"({"keywords": ["sea", "Sun"]})", "The sun over the sea", "The sea"},
           {"keywords:frequency", R"({"keyword": "sea", "frequency": 2, "relation": "at least"})", "sea, Sea", "sea"},
           {"keywords:forbidden_words", R"({"forbidden_words": ["sea"]})", "Season", "The Sea."},
           {"keywords:letter_frequency", R"({"letter": "q", "let_frequency": 1, "let_relation": "less than"})", "a",
            "q"},
           {"length_constraints:number_sentences", R"({"num_sentences": 2, "relation": "at least"})", "A b. C d!",
            "A b."},
           {"length_constraints:number_paragraphs", R"({"num_paragraphs": 2})", "a\n***\nb", "a"},
           {"length_constraints:number_words", R"({"num_words": 3, "relation": "less than"})", "one two",
            "one two three"},
           {"length_constraints:nth_paragraph_first_word",
            R"({"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "then"})", "a\n\nThen b", "a\n\nb"},
           {"detectable_content:number_placeholders", R"({"num_placeholders": 2})", "[a] and [b]", "[a]"},
           {"detectable_content:postscript", R"({"postscript_marker": "P.S."})", "x\nP.S. y", "x"},
           {"detectable_format:number_bullet_lists", R"({"num_bullets": 2})", "* a\n- b", "* a"},
           {"detectable_format:constrained_response", "{}", "My answer is no.", "no"},
           {"detectable_format:number_highlighted_sections", R"({"num_highlights": 2})", "*a* and **b**", "*a*"},
           {"detectable_format:multiple_sections", R"({"section_spliter": "PART", "num_sections": 2})",
            "PART 1 x PART 2 y", "PART 1"},
           {"detectable_format:json_format", "{}", "```json\n{\"a\": 1}\n```", "{a}"},
           {"detectable_format:title", "{}", "<<Title>> x", "<<>> x"},
           {"combination:two_responses", "{}", "a\n******\nb", "a\n******\na"},
           {"combination:repeat_prompt", R"({"prompt_to_repeat": "Say it"})", "Say it. It.", "It."},
           {"startend:end_checker", R"({"end_phrase": "Bye."})", "So bye.", "Bye now"},
           {"startend:quotation", "{}", "\"a\"", "a"},
           {"change_case:capital_word_frequency", R"({"capital_frequency": 2, "capital_relation": "at least"})",
            "YES AND no", "Yes AND"},
           {"change_case:english_capital", "{}", "ABC.", "Abc"},
           {"change_case:english_lowercase", "{}", "abc.", "Abc"},
           {"punctuation:no_comma", "{}", "a b", "a, b"}}) {
    const Json settings = Json::parse(one.settings);
    EXPECT_TRUE(follows_instruction(one.id, settings, "", one.good)) << one.id;
    EXPECT_FALSE(follows_instruction(one.id, settings, "", one.bad)) << one.id;
    EXPECT_FALSE(follows_instruction(one.id, settings, "", " \n")) << one.id;
  }
  EXPECT_THROW(follows_instruction("language:response_language", {}, "", "x"), Error);
  const Json row = Json::parse(R"({"prompt": "p", "instruction_id_list": ["punctuation:no_comma",
      "startend:quotation"], "kwargs": [{}, {}]})");
  EXPECT_TRUE(follows_instructions(row, "\"a b\""));
  EXPECT_FALSE(follows_instructions(row, "a b")) << "all of them";
}

}  // namespace
}  // namespace apus
