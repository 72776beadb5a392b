// SPDX-License-Identifier: Apache-2.0
// Documents cut into passages, and what a question finds in them.
#include "environment/passages.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "tests/folder.h"
#include "tests/refusal.h"

namespace apus {
namespace {

TEST(Passages, WordsAreSmallAndOfScriptsWithoutSpacesSingle) {
  EXPECT_EQ(words_compared("The Élan-vital, 3.5!"), (std::vector<std::string>{"the", "élan", "vital", "3", "5"}));
  EXPECT_EQ(words_compared("北京 is big"), (std::vector<std::string>{"北", "京", "is", "big"}));
  EXPECT_TRUE(words_compared(" ... \n").empty());
  EXPECT_EQ(words_compared("bad \xff byte").size(), 2u);
}

TEST(Passages, ParagraphsStayWhole) {
  const std::string paragraph(500, 'x');
  const auto cut = passages_of("t", paragraph + "\n\n" + paragraph + "\n\n\n\nshort\n\nmore");
  ASSERT_EQ(cut.size(), 2u);
  EXPECT_EQ(cut[0].text, paragraph);
  EXPECT_EQ(cut[1].text, paragraph + "\n\nshort\n\nmore");
  EXPECT_TRUE(passages_of("t", " \n\n \n").empty());
}

TEST(Passages, AreFoundByTheirRarestWords) {
  const PassageIndex index({{"Lisbon", "The capital of Portugal lies at the Tagus."},
                            {"Madrid", "The capital of Spain lies at the Manzanares."},
                            {"Rivers", "The Tagus, the Douro and the Guadiana are rivers."}});
  const auto found = index.find("Which is the capital of Portugal?", 2);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0]->title, "Lisbon");
  EXPECT_EQ(found[1]->title, "Madrid");
  EXPECT_EQ(index.find("douro", 3)[0]->title, "Rivers");
  EXPECT_TRUE(index.find("giraffe", 3).empty());
  EXPECT_TRUE(index.find("", 3).empty());
}

TEST(Passages, AreReadFromFoldersAndRows) {
  const test::Folder folder;
  std::filesystem::create_directory(folder.path / "sub");
  std::ofstream(folder.path / "b.txt") << "text of b";
  std::ofstream(folder.path / "sub" / "a.md") << "# a\n\nmore";
  std::ofstream(folder.path / "rows.jsonl") << R"({"title": "T", "text": "one"})"
                                               "\n\n"
                                               R"({"contents": "two"})"
                                               "\n";
  std::ofstream(folder.path / "image.png") << "no text";
  const auto all = passages_in(folder.path);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].title, "b.txt");
  EXPECT_EQ(all[1].title, "T");
  EXPECT_EQ(all[2].text, "two");
  EXPECT_EQ(all[3].title, "sub/a.md");
  EXPECT_EQ(passages_in(Json::parse(R"(["x", {"title": "y", "text": "z"}])"))[1].title, "y");
  std::ofstream(folder.path / "bad.jsonl") << "{\"title\": 1}\n";
  test::expect_says(test::refusal(Fault::Data, [&] { passages_in(folder.path); }), "bad.jsonl:1");
  test::expect_says(test::refusal(Fault::Usage, [&] { passages_in(folder.path / "none"); }), "this is no folder");
  test::expect_says(test::refusal(Fault::Data, [&] { passages_in(Json::array()); }), "'documents'");
}

}  // namespace
}  // namespace apus
