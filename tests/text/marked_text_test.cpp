// SPDX-License-Identifier: Apache-2.0
// Texts as encoders read them, against ids that HuggingFace's tokenizers gave.
#include "text/marked_text.h"

#include <gtest/gtest.h>

#include "tests/refusal.h"

namespace apus {
namespace {

std::string word_piece(const std::string& post_processor) {
  return str(R"({"version": "1.0", "added_tokens": [
    {"id": 0, "content": "[PAD]", "special": true}, {"id": 1, "content": "[UNK]", "special": true},
    {"id": 2, "content": "[CLS]", "special": true}, {"id": 3, "content": "[SEP]", "special": true}],
    "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
                   "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 100,
              "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "the": 4, "cat": 5, "##s": 6, "sit": 7,
                        "on": 8, "a": 9, "mat": 10, ".": 11, "!": 12, "cafe": 13, "\u4f60": 14, "\u597d": 15}},
    "post_processor": )",
             post_processor, "}");
}

const std::string kTemplate = R"({"type": "TemplateProcessing",
  "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
             {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
  "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
           {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
           {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
  "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                     "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}})";

using Ids = std::vector<int32_t>;

TEST(MarkedText, IsOneTextOrTwo) {
  const auto bert = Tokenizer::from_json(word_piece(kTemplate));
  const MarkedText one = marked_text(*bert, "The CATS sit on  a mat.", {});
  EXPECT_EQ(one.ids, (Ids{2, 4, 5, 6, 7, 8, 9, 10, 11, 3}));
  EXPECT_EQ(one.second, 0);
  EXPECT_EQ(one.ids, bert->encode("The CATS sit on  a mat.", true));
  const MarkedText two = marked_text(*bert, "Caf\u00e9!", "\u4f60\u597d dog");
  EXPECT_EQ(two.ids, (Ids{2, 13, 12, 3, 14, 15, 1, 3}));
  EXPECT_EQ(two.second, 4);
}

TEST(MarkedText, RobertasTextsAreNotToldApart) {
  const auto roberta = Tokenizer::from_json(word_piece(R"({"type": "RobertaProcessing", "cls": ["[CLS]", 2],
      "sep": ["[SEP]", 3], "trim_offsets": true, "add_prefix_space": false})"));
  const MarkedText two = marked_text(*roberta, "a cat", "mat");
  EXPECT_EQ(two.ids, (Ids{2, 9, 5, 3, 3, 10, 3}));
  EXPECT_EQ(two.second, 0);
}

// Of two texts the longer one is cut first; the marks stay.
TEST(MarkedText, IsCutAsHuggingFaceCutsIt) {
  const auto bert = Tokenizer::from_json(word_piece(kTemplate));
  const auto ids = [&](const char* a, const char* b, TextLimit limit) {
    return marked_text(*bert, a, b ? std::optional<std::string>(b) : std::nullopt, limit).ids;
  };
  EXPECT_EQ(ids("the cat sit on a mat", nullptr, {.tokens = 5}), (Ids{2, 4, 5, 7, 3}));
  EXPECT_EQ(ids("the cat sit on a mat", nullptr, {.tokens = 5, .cut_begins = true}), (Ids{2, 8, 9, 10, 3}));
  EXPECT_EQ(ids("the cat sit on", "a mat", {.tokens = 8}), (Ids{2, 4, 5, 7, 3, 9, 10, 3}));
  EXPECT_EQ(ids("the cat", "sit on a mat", {.tokens = 8}), (Ids{2, 4, 5, 3, 7, 8, 9, 3}));
  EXPECT_EQ(ids("the cat sit on", "sit on a mat", {.tokens = 8}), (Ids{2, 4, 5, 3, 7, 8, 9, 3}));
  EXPECT_EQ(ids("the cat sit on a", "sit on a mat", {.tokens = 8}), (Ids{2, 4, 5, 7, 3, 7, 8, 3}));
  EXPECT_EQ(ids("the cat", "a mat", {.tokens = 7}), (Ids{2, 4, 5, 3, 9, 10, 3}));
}

TEST(MarkedText, OfATalkTheAnswerIsTheSecond) {
  const auto bert = Tokenizer::from_json(word_piece(kTemplate));
  const auto said = [](const char* role, const char* text) { return Json{{"role", role}, {"content", text}}; };
  const Json both = Json::array({said("user", "the cat"), said("assistant", "a mat")});
  EXPECT_EQ(marked_talk(*bert, both, 0).ids, (Ids{2, 4, 5, 3, 9, 10, 3}));
  EXPECT_EQ(marked_talk(*bert, both, 0).second, 4);
  const Json alone = Json::array({said("assistant", "the cat")});
  EXPECT_EQ(marked_talk(*bert, alone, 0).ids, (Ids{2, 4, 5, 3}));
  const Json users = Json::array({said("user", "the"), said("user", "cat"), said("user", "a mat")});
  EXPECT_EQ(marked_talk(*bert, users, 0).ids, (Ids{2, 4, 5, 9, 10, 3}));
  EXPECT_EQ(marked_talk(*bert, users, 2).ids, (Ids{2, 4, 5, 3, 9, 10, 3}));
}

TEST(MarkedText, ATokenizerWithoutPairsSaysSo) {
  Json file = Json::parse(word_piece(kTemplate));
  file["post_processor"].erase("pair");
  const auto single = Tokenizer::from_json(file.dump());
  test::expect_says(test::refusal(Fault::Model, [&] { marked_text(*single, "a", "mat"); }), "post_processor: pair");
  Json wrong = Json::parse(word_piece(kTemplate));
  std::swap(wrong["post_processor"]["pair"][1], wrong["post_processor"]["pair"][3]);
  test::expect_says(test::refusal(Fault::Model, [&] { Tokenizer::from_json(wrong.dump()); }), "may not stand here");
}

}  // namespace
}  // namespace apus
