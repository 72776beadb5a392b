// SPDX-License-Identifier: Apache-2.0
// Two tokenizers of the same size are told apart by what their ids mean and by how they cut text.
#include "text/tokenizer_difference.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "cli/other_tokenizers.h"
#include "tests/folder.h"
#include "tests/refusal.h"

namespace apus {
namespace {

Json tokenizer_of(Json vocab, Json added = Json::array(), const char* split = "\\s+") {
  return {{"model", {{"type", "WordLevel"}, {"vocab", std::move(vocab)}, {"unk_token", "?"}}},
          {"added_tokens", std::move(added)},
          {"pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", split}}}, {"behavior", "Removed"}}}};
}

Json added(int id, const char* content) { return {{"id", id}, {"content", content}, {"special", true}}; }

std::string difference(const Json& mine, const Json& other) {
  return tokenizer_difference(*Tokenizer::from_json(mine.dump()), *Tokenizer::from_json(other.dump()));
}

const Json kVocab = {{"?", 0}, {"a", 1}, {"b", 2}, {"The", 3}};

TEST(TokenizerDifference, IsWhatAnIdMeans) {
  EXPECT_EQ(difference(tokenizer_of(kVocab), tokenizer_of(kVocab)), "");
  const Json swapped = {{"?", 0}, {"b", 1}, {"a", 2}, {"The", 3}};
  EXPECT_EQ(difference(tokenizer_of(kVocab), tokenizer_of(swapped)),
            "token 1 is 'a' here and 'b' there (4 and 4 tokens)");
  const Json fewer = {{"?", 0}, {"a", 1}, {"b", 2}};
  EXPECT_EQ(difference(tokenizer_of(kVocab), tokenizer_of(fewer)),
            "token 3 is 'The' here and none there (4 and 3 tokens)");
  EXPECT_EQ(difference(tokenizer_of(fewer), tokenizer_of({{"?", 0}, {"a", 1}, {"b", 2}, {"c", 3}})), "")
      << "it knows more";
}

TEST(TokenizerDifference, AddedTokensMustNotMeanSomethingElse) {
  EXPECT_EQ(difference(tokenizer_of(kVocab, Json::array({added(4, "<x>")})), tokenizer_of(kVocab)), "")
      << "the other has no such token";
  EXPECT_NE(difference(tokenizer_of(kVocab, Json::array({added(4, "<x>")})),
                       tokenizer_of(kVocab, Json::array({added(4, "<y>")}))),
            "");
}

TEST(TokenizerDifference, IsHowTextIsCut) {
  EXPECT_NE(difference(tokenizer_of(kVocab), tokenizer_of(kVocab, Json::array(), "q")).find("becomes other tokens"),
            std::string::npos);
}

TEST(OtherTokenizers, AreRefusedByName) {
  test::Folder folder;
  for (const char* name : {"policy", "same", "other", "none"}) std::filesystem::create_directory(folder.path / name);
  write_file_atomic(folder.path / "policy/tokenizer.json", tokenizer_of(kVocab).dump());
  write_file_atomic(folder.path / "same/tokenizer.json", tokenizer_of(kVocab).dump());
  write_file_atomic(folder.path / "other/tokenizer.json",
                    tokenizer_of({{"?", 0}, {"b", 1}, {"a", 2}, {"The", 3}}).dump());
  for (const char* name : {"policy", "same", "none"})
    EXPECT_NO_THROW(require_same_tokenizer(folder.path / "policy", folder.path / name, "--teacher_model")) << name;
  const std::string why = test::refusal(
      Fault::Usage, [&] { require_same_tokenizer(folder.path / "policy", folder.path / "other", "--teacher_model"); });
  for (const char* part : {"--teacher_model", "/other", "/policy", "token 1 is 'a' here and 'b' there"})
    test::expect_says(why, part);
}

}  // namespace
}  // namespace apus
