// SPDX-License-Identifier: Apache-2.0
// Questions from rows, and what their records look like; text metrics.
#include "data/rows/infer_row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "data/results/result_file.h"
#include "data/results/text_metrics.h"
#include "tests/folder.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

Question question(const char* text) { return make_question({.value = Json::parse(text), .origin = {}}); }

TEST(Question, TheAnswerOfARowIsItsLabel) {
  const auto q =
      question(R"({"id": 7, "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})");
  EXPECT_EQ(q.label, "b");
  EXPECT_EQ(q.row.dump(), R"({"id":7,"messages":[{"role":"user","content":"a"}]})");
  EXPECT_EQ(
      q.record("c", nullptr).dump(),
      R"({"response":"c","labels":"b","logprobs":null,"id":7,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"c"}]})");
  EXPECT_EQ(q.key(), row_key(q.record("whatever", Json::array())));
}

TEST(Question, OtherShapes) {
  const auto q = question(R"({"query": "a", "response": "b", "system": "s", "history": [["x", "y"]]})");
  EXPECT_EQ(q.label, "b");
  EXPECT_EQ(
      q.row["messages"].dump(),
      R"([{"role":"system","content":"s"},{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"role":"user","content":"a"}])");
  EXPECT_EQ(question(R"({"query": "a"})").label, std::nullopt);
  const auto tools = question(
      R"({"messages": [{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},{"role":"tool","content":"r"}]})");
  EXPECT_EQ(tools.row["messages"].size(), 3u) << "taken as it stands";
  EXPECT_EQ(question(R"({"conversations": [{"from":"human","value":"a"},{"from":"gpt","value":"b"}]})").label, "b");
}

TEST(Question, ContentInParts) {
  const auto q =
      question(R"({"messages": [{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})");
  EXPECT_EQ(q.row["messages"].dump(), R"([{"role":"user","content":"ab"}])");
  EXPECT_THROW(
      question(
          R"({"messages": [{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x/y.png"}}]}]})"),
      RowError);
}

TEST(Question, BadRows) {
  EXPECT_THROW(question(R"([1])"), RowError);
  EXPECT_THROW(question(R"({"x": 1})"), RowError);
  EXPECT_THROW(question(R"({"messages": [{"role": "assistant", "content": "b"}]})"), RowError);
  EXPECT_THROW(question(R"({"messages": [{"role": "user", "content": "a"}], "images": ["x.png"]})"), RowError);
}

TEST(Questions, SeveralFilesTwiceAndBadRows) {
  const test::Folder folder;
  const fs::path& dir = folder.path;
  write_file_atomic(dir / "a.jsonl", "{\"query\": \"0\"}\nbroken\n{\"query\": \"2\"}\n");
  write_file_atomic(dir / "b.jsonl", "{\"query\": \"3\"}\n\n{\"query\": \"4\"}\n");
  Questions all({{.files = {(dir / "a.jsonl").string(), (dir / "b.jsonl").string()}}}, std::nullopt);
  EXPECT_EQ(all.count(), 5);
  for (int pass = 0; pass < 2; ++pass, all.rewind()) {
    std::vector<int64_t> good, bad;
    for (;;) {
      try {
        const auto q = all.next();
        if (!q) break;
        EXPECT_EQ(q->row["messages"][0]["content"], std::to_string(all.index()));
        good.push_back(all.index());
      } catch (const RowError&) {
        bad.push_back(all.index());
      }
    }
    EXPECT_EQ(good, (std::vector<int64_t>{0, 2, 3, 4}));
    EXPECT_EQ(bad, (std::vector<int64_t>{1}));
  }
  Questions some({{.files = {(dir / "a.jsonl").string(), (dir / "b.jsonl").string()}}}, 4);
  EXPECT_EQ(some.count(), 4);
}

TEST(Questions, CountsAndColumnsOfEachSet) {
  const test::Folder folder;
  const fs::path& dir = folder.path;
  write_file_atomic(dir / "a.jsonl", "{\"query\": \"a0\"}\n{\"query\": \"a1\"}\n{\"query\": \"a2\"}\n");
  write_file_atomic(dir / "b.csv", "asked,said\nb0,x\nb1,y\n");
  const QuestionSet a{.files = {(dir / "a.jsonl").string()}, .count = 2};
  const QuestionSet b{.files = {(dir / "b.csv").string()},
                      .count = 5,
                      .normalize = {.columns = {{"asked", "query"}, {"said", "response"}}}};
  const auto texts = [](Questions& rows) {
    std::vector<std::string> out;
    while (const auto q = rows.next())
      out.push_back(q->row["messages"][0]["content"].get<std::string>() + q->label.value_or(""));
    return out;
  };
  Questions rows({a, b}, std::nullopt);
  const std::vector<std::string> expected = {"a0", "a1", "b0x", "b1y", "b0x", "b1y", "b0x"};
  EXPECT_EQ(texts(rows), expected);
  EXPECT_EQ(rows.count(), 7);
  EXPECT_EQ(texts(rows), expected) << "again after count()";
  write_file_atomic(dir / "empty.jsonl", "");
  Questions none({{.files = {(dir / "empty.jsonl").string()}, .count = 3}, a}, std::nullopt);
  EXPECT_EQ(texts(none).size(), 2u) << "an empty set repeats nothing";
}

TEST(TextMetrics, Words) {
  EXPECT_EQ(words_of("Hi, it's 3.5 \u4f60\u597d caf\u00e9"),
            (std::vector<std::string>{"Hi", ",", "it", "'", "s", "3", ".", "5", "\u4f60", "\u597d", "caf\u00e9"}));
}

TEST(TextMetrics, RougeByHand) {
  const auto same = rouge("the cat sat", "the cat sat");
  EXPECT_NEAR(same.rouge1, 1, 1e-6);
  EXPECT_NEAR(same.rouge2, 1, 1e-6);
  EXPECT_NEAR(same.rouge_l, 1, 1e-6);
  // 3 of 4 and 3 of 5 words; 1 of 3 and 1 of 4 pairs; common in order: "the cat mat".
  const auto r = rouge("the cat red mat", "the cat on a mat");
  EXPECT_NEAR(r.rouge1, 2 * 0.75 * 0.6 / 1.35, 1e-6);
  EXPECT_NEAR(r.rouge2, 2 * (1.0 / 3) * 0.25 / (1.0 / 3 + 0.25), 1e-6);
  const double beta = 0.75 / 0.6;
  EXPECT_NEAR(r.rouge_l, (1 + beta * beta) * 0.6 * 0.75 / (0.6 + beta * beta * 0.75), 1e-6);
  EXPECT_EQ(rouge("", "a").rouge1, 0);
  EXPECT_EQ(rouge("b", "a").rouge_l, 0);
}

TEST(TextMetrics, BleuByHand) {
  EXPECT_NEAR(bleu4("abcdef", "abcdef"), 1, 1e-12);
  EXPECT_EQ(bleu4("xyz", "abc"), 0);
  // "abxd" against "abcd": 3/4, 1/3, none of 2 -> 1/(2*2), none of 1 -> 1/(4*1); equal lengths.
  EXPECT_NEAR(bleu4("abxd", "abcd"),
              std::exp((std::log(0.75) + std::log(1.0 / 3) + std::log(0.25) + std::log(0.25)) / 4), 1e-12);
  // Shorter than the reference: exp(1 - 6/5).
  EXPECT_NEAR(bleu4("abcde", "abcdef"), std::exp(1 - 6.0 / 5), 1e-12);
  TextMetrics m;
  m.add("a b", "a b");
  m.add("x", "y");
  EXPECT_NEAR(m.result()[0].second, 50, 1e-5);
  EXPECT_EQ(m.result()[3].first, "bleu-4");
}

}  // namespace
}  // namespace apus
