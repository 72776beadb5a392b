// SPDX-License-Identifier: Apache-2.0
// SentencePiece's and tiktoken's files against what these libraries make of them (tests/peers/tokenizer_files.py).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "tests/folder.h"
#include "tests/paths.h"
#include "tests/refusal.h"
#include "text/tokenizer.h"
#include "text/tokenizer_source.h"

namespace apus {
namespace {

using Ids = std::vector<int32_t>;

const std::string kFiles = (test::source_dir() / "tests/data/text/files/").string();

std::string piece_file(const std::string& name) { return read_file(kFiles + name + "/tokenizer.model", 1 << 20); }

TEST(TokenizerFiles, PiecesAsSentencePieceHasThem) {
  const Json expected = parse_json(read_file(kFiles + "expected.json", 1 << 20), "expected.json");
  const auto texts = expected["texts"].get<std::vector<std::string>>();
  for (const char* name : {"bpe", "bpe_no_prefix", "bpe_nfkc", "bpe_whole", "unigram"}) {
    const auto tokenizer = Tokenizer::load(kFiles + name);
    for (size_t i = 0; i < texts.size(); ++i) {
      const Ids ids = expected[name]["ids"][i].get<Ids>();
      EXPECT_EQ(tokenizer->encode(texts[i]), ids) << name << ": " << texts[i];
      if (expected[name]["text"].is_array()) {
        EXPECT_EQ(tokenizer->decode(ids), expected[name]["text"][i].get<std::string>()) << name;
      }
    }
    EXPECT_EQ(tokenizer->bos(), 1) << name;
    EXPECT_EQ(tokenizer->eos(), 2) << name;
  }
}

TEST(TokenizerFiles, WhatTheClassesPutBeforeAText) {
  const std::string file = piece_file("bpe");
  const auto before = [&](const char* config) {
    const auto tokenizer = Tokenizer::from_file(file, "tokenizer.model", config);
    const Ids with = tokenizer->encode("the", true), without = tokenizer->encode("the");
    return Ids(with.begin(), with.end() - std::ssize(without));
  };
  const int32_t pieces = Tokenizer::from_file(file, "tokenizer.model")->vocab_size();
  EXPECT_EQ(before(R"({"tokenizer_class": "InternLM2Tokenizer"})"), Ids{1});
  EXPECT_EQ(before(R"({"tokenizer_class": "BaichuanTokenizer", "add_bos_token": false})"), Ids{});
  EXPECT_EQ(before(R"({"tokenizer_class": "ChatGLMTokenizer"})"), (Ids{pieces + 1, pieces + 3}));  // [gMASK] sop
  const auto glm = Tokenizer::from_file(file, "tokenizer.model", R"({"tokenizer_class": "ChatGLMTokenizer"})");
  EXPECT_EQ(glm->encode("<|user|>"), Ids{pieces + 6});
}

// InternLM 2 gives the last of its pieces other names.
TEST(TokenizerFiles, PiecesThatTheConfigurationNames) {
  const auto plain = Tokenizer::from_file(piece_file("bpe"), "tokenizer.model");
  const int32_t last = plain->vocab_size() - 1;
  const Json config = {
      {"added_tokens_decoder", {{std::to_string(last), {{"content", "<|im_end|>"}, {"special", true}}}}}};
  const auto named = Tokenizer::from_file(piece_file("bpe"), "tokenizer.model", config.dump());
  EXPECT_EQ(named->id("<|im_end|>"), last);
  EXPECT_TRUE(named->is_special(last));
  EXPECT_EQ(named->encode("<|im_end|>"), Ids{last});
  EXPECT_EQ(named->vocab_size(), plain->vocab_size());
}

// All bytes, and what "ab" and "abc" are.
std::string ranks() {
  std::string out;
  for (int b = 0; b < 256; ++b) out += str(base64(std::string(1, static_cast<char>(b))), ' ', b, '\n');
  return out + str(base64("bc"), " 256\n", base64("abc"), " 257\n");
}

TEST(TokenizerFiles, RanksMergeTheLowestFirst) {
  const auto qwen = Tokenizer::from_file(ranks(), "qwen.tiktoken");
  EXPECT_EQ(qwen->encode("abc ab<|im_end|>"), (Ids{257, ' ', 'a', 'b', 260}));
  EXPECT_EQ(qwen->id("<|extra_204|>"), 258 + 3 + 204);
  EXPECT_EQ(qwen->eos(), 258);
  const auto hunyuan = Tokenizer::from_file(ranks(), "hy.tiktoken");
  EXPECT_EQ(hunyuan->id("<|startoftext|>"), 259);
  const char* const kimi_says =
      R"({"added_tokens_decoder": {"259": {"content": "[EOS]", "special": true}}, "eos_token": "[EOS]"})";
  const auto kimi = Tokenizer::from_file(ranks(), "tiktoken.model", kimi_says);
  EXPECT_EQ(kimi->encode("a\u4f60b[EOS]<|reserved_token_260|>"), (Ids{'a', 0xE4, 0xBD, 0xA0, 'b', 259, 260}));
  EXPECT_EQ(kimi->pre_tokenize("It's\u4f60\u597dok").size(), 3u);
  EXPECT_EQ(kimi->eos(), 259);
  const char* const glm_says =
      R"({"tokenizer_class": "ChatGLM4Tokenizer", "added_tokens_decoder": {"258": {"content": "[gMASK]"},
      "259": {"content": "<sop>"}}})";
  EXPECT_EQ(Tokenizer::from_file(ranks(), "tokenizer.model", glm_says)->encode("a", true), (Ids{258, 259, 'a'}));
}

// The same tokens as Mistral writes them, behind 24 special ones; the last word does not count.
Json tekken() {
  Json vocab = Json::array();
  const auto add = [&](const std::string& bytes) {
    vocab.push_back({{"rank", vocab.size()}, {"token_bytes", base64(bytes)}, {"token_str", nullptr}});
  };
  for (int b = 0; b < 256; ++b) add(std::string(1, static_cast<char>(b)));
  for (const char* word : {"bc", "abc", "abcabc"}) add(word);
  return {{"vocab", vocab},
          {"config",
           {{"pattern", R"(\p{L}+|\P{L}+)"},
            {"num_vocab_tokens", 259},
            {"default_vocab_size", 282},
            {"default_num_special_tokens", 24},
            {"version", "v3"}}}};
}

TEST(TokenizerFiles, TekkenStandsBehindItsSpecialTokens) {
  const auto plain = Tokenizer::from_file(tekken().dump(), "tekken.json");
  EXPECT_EQ(plain->encode("abcabc 1"), (Ids{281, 281, 24 + ' ', 24 + '1'}));
  EXPECT_EQ(plain->encode("[INST]a", true), (Ids{1, 3, 24 + 'a'}));
  EXPECT_EQ(plain->encode("[INST]a", false, true).size(), 7u);
  EXPECT_EQ(plain->id("<SPECIAL_23>"), 23);
  EXPECT_EQ(plain->eos(), 2);
  EXPECT_EQ(plain->decode(Ids{1, 281, 280}, true), "abcbc");
  Json named = tekken();
  named["special_tokens"] = {{{"rank", 0}, {"token_str", "<s>"}, {"is_control", true}},
                             {{"rank", 5}, {"token_str", "[AUDIO]"}, {"is_control", true}}};
  const auto heard = Tokenizer::from_file(named.dump(), "tekken.json");
  EXPECT_EQ(heard->encode("a[AUDIO]", true), (Ids{0, 24 + 'a', 5}));
  EXPECT_EQ(heard->id("<SPECIAL_3>"), 3);
  const auto refused = [](const Json& json) {
    return test::refusal(Fault::Model, [&] { Tokenizer::from_file(json.dump(), "tekken.json"); });
  };
  named["special_tokens"][1]["rank"] = 24;
  test::expect_says(refused(named), "rank 24 lies behind");
  Json large = tekken();
  large["config"]["default_vocab_size"] = 284;
  test::expect_says(refused(large), "do not fit its vocab of 259");
  Json mixed = tekken();
  mixed["vocab"][7]["rank"] = 8;
  test::expect_says(refused(mixed), "vocab[7] has another rank");
  test::expect_says(refused(Json::array()), "an object is expected");
}

TEST(TokenizerFiles, WhatIsNoneOfTheseIsRefused) {
  const auto refused = [](const std::string& bytes, const char* file) {
    return test::refusal(Fault::Model, [&] { Tokenizer::from_file(bytes, file); });
  };
  test::expect_says(refused("\x0A\xFF\xFF", "tokenizer.model"), "is no SentencePiece model");
  test::expect_says(refused("", "tokenizer.model"), "it has no pieces");
  test::expect_says(refused(ranks() + "YQ== x\n", "qwen.tiktoken"), "line 259");
  test::expect_says(refused(ranks() + "YQ== 300\n", "qwen.tiktoken"), "is there twice");
  test::expect_says(refused(ranks(), "tokenizer.model"), "does not say which are special");
}

TEST(TokenizerFiles, AFolderWithoutOneSaysWhatIsTaken) {
  const test::Folder folder;
  test::expect_says(test::refusal(Fault::Model, [&] { Tokenizer::load(folder.path); }),
                    "SentencePiece's tokenizer.model");
  EXPECT_FALSE(has_tokenizer(folder.path));
  EXPECT_TRUE(has_tokenizer(kFiles + "bpe"));
  EXPECT_TRUE(tokenizer_json(folder.path).is_null());
}

// What GGUF files are made of.
TEST(TokenizerFiles, AsTokenizerJson) {
  const Json json = tokenizer_json(kFiles + "bpe");
  EXPECT_EQ(json["model"]["type"], "BPE");
  EXPECT_EQ(json["model"]["byte_fallback"], true);
  EXPECT_FALSE(json["model"]["merges"].empty());
  EXPECT_EQ(json["added_tokens"][1]["content"], "<s>");
}

}  // namespace
}  // namespace apus
