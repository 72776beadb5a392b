// SPDX-License-Identifier: Apache-2.0
// Corners of tokenizer.json as the tokenizers library has them (0.23.2): ids of added tokens, patterns in Oniguruma's
// dialect, the beginning of the input. Found by comparing random tokenizers.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "tests/folder.h"
#include "tests/refusal.h"
#include "text/tokenizer.h"

namespace apus {
namespace {

using Ids = std::vector<int32_t>;
using Pieces = std::vector<std::string>;

Json added(int id, const std::string& content, const Json& flags = Json::object()) {
  Json token = {{"id", id}, {"content", content}, {"normalized", false}, {"special", false}};
  token.update(flags);
  return token;
}

std::shared_ptr<const Tokenizer> words(Json json) {
  json["model"] = {
      {"type", "WordLevel"}, {"vocab", {{"a", 0}, {"[UNK]", 1}, {"▁a", 2}, {"\u0378", 3}}}, {"unk_token", "[UNK]"}};
  return Tokenizer::from_json(json.dump());
}

Pieces split(const std::string& pattern, const std::string& text, const char* behavior = "Isolated") {
  return words({{"pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}}}})
      ->pre_tokenize(text);
}

TEST(TokenizerCorners, AddedTokensAreCountedBehindTheVocabulary) {
  const auto t = words({{"added_tokens", {added(9, "<x>"), added(7, "a"), added(30, "<y>")}}});
  EXPECT_EQ(t->encode("<x><y>a"), (Ids{4, 5, 0}));
  EXPECT_EQ(t->vocab_size(), 6);
}

TEST(TokenizerCorners, ANormalizedTokenIsDecodedFromItsNormalForm) {
  const auto t = words({{"normalizer", {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}},
                        {"decoder", {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "never"}}},
                        {"added_tokens", {added(4, "b c", {{"normalized", true}}), added(5, " d")}}});
  EXPECT_EQ(t->encode("b ca d"), (Ids{4, 0, 5}));
  EXPECT_EQ(t->decode(Ids{4, 0, 5}), "b ca d");
}

TEST(TokenizerCorners, TokensWithinStrippedSpaceCountToo) {
  EXPECT_EQ(words({{"added_tokens", {added(4, "\n", {{"rstrip", true}})}}})->encode("a\n \na"), (Ids{0, 4, 4, 0}));
  const Json both = {{"lstrip", true}, {"rstrip", true}};  // but one that takes all to its left finds nothing there
  EXPECT_EQ(words({{"added_tokens", {added(4, "\n", both)}}})->encode("a\n \na"), (Ids{0, 4, 0}));
}

TEST(TokenizerCorners, TheFirstPieceIsTheOneAtTheBeginningOfTheInput) {
  const auto t = words({{"normalizer", {{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}}},
                        {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}}}});
  EXPECT_EQ(t->encode("a"), (Ids{2}));
  EXPECT_EQ(t->encode(" a"), (Ids{0}));
}

TEST(TokenizerCorners, BertKeepsUnassignedCharacters) {
  const auto t = words({{"normalizer",
                         {{"type", "BertNormalizer"},
                          {"handle_chinese_chars", false},
                          {"strip_accents", false},
                          {"lowercase", false}}}});
  EXPECT_EQ(t->encode("\u0378\u200b\ue000"), (Ids{3}));
}

TEST(TokenizerCorners, ScriptsAreNotWhatTheirCharactersAreUsedWith) {
  EXPECT_EQ(split("\\p{Han}+", "汉、字"), (Pieces{"汉", "、", "字"}));
  EXPECT_EQ(split("\\p{Han}", "汉、字", "Removed"), (Pieces{"、"}));
  EXPECT_EQ(split("\\p{greek}", "α\u0342", "Removed"), (Pieces{"\u0342"}));
}

TEST(TokenizerCorners, RunsOfOneScript) {
  const auto t = words({{"pre_tokenizer", {{"type", "UnicodeScripts"}}}});
  EXPECT_EQ(t->pre_tokenize("  ab я, 漢字カナー1"), (Pieces{"ab ", "я", ", ", "漢字カナー", "1"}));
  EXPECT_EQ(t->pre_tokenize("a \u0378b\U0001E900"), (Pieces{"a \u0378b", "\U0001E900"}));
  EXPECT_TRUE(t->pre_tokenize("  ").empty());
}

// What tokenizer_config.json says beside tokenizer.json, as transformers takes it.
TEST(TokenizerCorners, TheConfigurationsWord) {
  const Json template_post = {{"type", "BertProcessing"}, {"cls", {"a", 0}}, {"sep", {"a", 0}}};
  const auto with = [&](Json tokenizer, const Json& config) {
    tokenizer["model"] = {
        {"type", "BPE"}, {"vocab", {{"a", 0}, {"Ġ", 1}, {"<s>", 2}, {"</s>", 3}}}, {"merges", Json::array()}};
    return Tokenizer::from_json(tokenizer.dump(), config.dump());
  };
  const Json post = {{"post_processor", template_post}};
  const auto llama = with(post, {{"tokenizer_class", "LlamaTokenizerFast"}});
  EXPECT_EQ(llama->special_token("bos_token"), "<s>");  // the class's own name for it
  EXPECT_EQ(llama->encode("a", true), (Ids{2, 0}));     // it frames the text itself
  EXPECT_EQ(with(post, {{"tokenizer_class", "LlamaTokenizer"}, {"add_bos_token", false}, {"add_eos_token", true}})
                ->encode("a", true),
            (Ids{0, 3}));
  const auto other = with(post, {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"bos_token", "<s>"}});
  EXPECT_EQ(other->encode("a", true), (Ids{0, 0, 0}));
  EXPECT_EQ(other->special_token("eos_token"), "");
  const Json bytes = {{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", true}}}};
  EXPECT_EQ(with(bytes, Json::object())->encode("a"), (Ids{1, 0}));
  EXPECT_EQ(with(bytes, {{"add_prefix_space", false}})->encode("a"), (Ids{0}));
  const Json plain = {{"added_tokens", {added(2, "<s>")}}};
  const Json special = {{"added_tokens_decoder", {{"2", {{"content", "<s>"}, {"special", true}}}}}};
  EXPECT_EQ(with(plain, Json::object())->decode(Ids{2, 0}, true), "<s> a");
  EXPECT_EQ(with(plain, special)->decode(Ids{2, 0}, true), "a");
}

TEST(TokenizerCorners, SetsWithinSets) {
  EXPECT_EQ(split("[\\p{L}&&[^a-c]]", "abcdé1", "Removed"), (Pieces{"abc", "1"}));
  EXPECT_EQ(split("[\\p{Lu}\\p{M}&&[^\\p{Han}]]+[a-z]", "ABc汉", "Removed"), (Pieces{"汉"}));
  EXPECT_EQ(split("[^a-z&&[^x]]", "axB", "Removed"), (Pieces{"a"}));
  EXPECT_EQ(split("[[a-c]x]", "abxd", "Removed"), (Pieces{"d"}));
  EXPECT_EQ(split("[a[^b-z]]", "ab1", "Removed"), (Pieces{"b"}));
  EXPECT_THROW(split("[a", "a"), Error);
  EXPECT_THROW(split(std::string(60000, '('), "a"), Error);
  std::string long_one(20000, 'b');
  for (size_t i = 0; i < long_one.size(); i += 2) long_one[i] = '\\';
  EXPECT_THROW(split(long_one, "a"), Error);
  EXPECT_THROW(split(std::string(100, '[') + "a" + std::string(100, ']'), "a"), Error);
}

TEST(TokenizerCorners, ClassesAreUnicodes) {
  EXPECT_EQ(split("\\b", "aी ‿b"), (Pieces{"aी", " ", "‿b"}));
  EXPECT_EQ(split("[[:punct:]]", "a¢!", "Removed"), (Pieces{"a"}));
  EXPECT_EQ(split("\\p{Punct}", "a¢!", "Removed"), (Pieces{"a¢"}));
  EXPECT_EQ(split("\\w", "²!", "Removed"), (Pieces{"!"}));  // outside of a set Latin-1's numbers are word characters
  EXPECT_EQ(split("[\\w]", "²!", "Removed"), (Pieces{"²!"}));
  EXPECT_EQ(split("\\p{Uppercase_Letter}|\\p{nonspacing mark}", "aB\u0301", "Removed"), (Pieces{"a"}));
  EXPECT_EQ(split("[\\W]", "a-b", "Removed"), (Pieces{"a", "b"}));
  EXPECT_EQ(split("\\u4e2d|\\v", "a中\x0b", "Removed"), (Pieces{"a"}));
}

TEST(TokenizerCorners, RepetitionsAndOptions) {
  EXPECT_EQ(split("\\p{N}{1,3}+", "a1234567b"), (Pieces{"a", "1234567", "b"}));  // a plus behind {} repeats
  EXPECT_EQ(split("(?:ab){,2}+x", "ababababx"), (Pieces{"ababababx"}));
  EXPECT_EQ(split("a{2}?", "aaaaa"), (Pieces{"aa", "aa", "a"}));  // ... and so does a question mark
  EXPECT_EQ(split("a{1,2}?", "aaa"), (Pieces{"a", "a", "a"}));
  EXPECT_EQ(split("\\w+?*b", "xayb!"), (Pieces{"xayb", "!"}));
  EXPECT_THROW(split("a" + std::string(1000, '*'), "a"), Error);
  EXPECT_EQ(split("(?m:a.)", "ba\nc"), (Pieces{"b", "a\n", "c"}));               // m lets the dot match line ends
  EXPECT_EQ(split("(x(?i)a|b)c", "XacBcxAcxBc", "Removed"), (Pieces{"XacBc"}));  // i takes the alternatives along
  EXPECT_EQ(split("\\Qa", "QaE", "Removed"), (Pieces{"E"}));                     // no quoting
}

// Ids as transformers' BertTokenizer gives them for these words.
TEST(TokenizerCorners, BertsVocabularyOfLines) {
  test::Folder folder;
  const auto write = [&](const char* name, const std::string& text) { write_file_atomic(folder.path / name, text); };
  write("vocab.txt", "[PAD]\r\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n##s\nworld\n,\n\u4e2d\ncafe\nHello\n");
  const auto tokenizer = Tokenizer::load(folder.path);
  EXPECT_EQ(tokenizer->encode("Hellos, World \u4e2d\u4e2d caf\u00e9 xyz", true), (Ids{2, 5, 6, 8, 7, 9, 9, 10, 1, 3}));
  EXPECT_EQ(tokenizer->encode("a[MASK]"), (Ids{1, 4}));
  EXPECT_EQ(tokenizer->decode(Ids{2, 5, 6, 8, 7, 3}, true), "hellos, world");
  EXPECT_EQ(tokenizer->marks(true).between, Ids{3});
  write("tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_EQ(Tokenizer::load(folder.path)->encode("Hello hello"), (Ids{11, 5}));
  write("vocab.txt", "a\nb\n");
  test::expect_says(test::refusal(Fault::Model, [&] { Tokenizer::load(folder.path); }), "[UNK] is missing");
}

}  // namespace
}  // namespace apus
