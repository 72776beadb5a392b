// SPDX-License-Identifier: Apache-2.0
// Every golden case of ids, decoding, streaming, pre-tokenisation, normal form and invalid UTF-8, exactly.
#include <cstring>
#include <map>

#include "tests/text/text_golden.h"
#include "text/unicode.h"

namespace apus {
namespace {

using golden_text::find;
using golden_text::lines;

uint64_t fnv(const void* data, size_t n) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < n; ++i) hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3u;
  return hash;
}
std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}
std::string fnv_of(const std::vector<int32_t>& ids) { return hex(fnv(ids.data(), ids.size() * sizeof(int32_t))); }
std::string fnv_of(const std::string& text) { return hex(fnv(text.data(), text.size())); }

using Ids = std::vector<int32_t>;

const std::map<std::string, std::string>& strings() {
  static const auto texts = [] {
    std::map<std::string, std::string> all;
    for (const Json& row : lines(*find("strings.jsonl"))) all[row["id"]] = row["text"];
    return all;
  }();
  return texts;
}

std::string hex_bytes(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

class Golden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    tokenizer_ = golden_text::tokenizer(GetParam());
    if (!tokenizer_) GTEST_SKIP() << golden_text::kNoGolden;
  }
  std::vector<Json> rows(const std::string& kind) const {
    const auto path = find(kind + "/" + GetParam() + ".jsonl");
    return path ? lines(*path) : std::vector<Json>();
  }
  std::shared_ptr<const Tokenizer> tokenizer_;
};

void check_offsets(const Tokenizer& tokenizer, const std::string& text, const Ids& ids) {
  const auto pieces = tokenizer.encode_offsets(text);
  ASSERT_EQ(pieces.size(), ids.size());
  uint32_t begin = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(pieces[i].id, ids[i]);
    EXPECT_LE(pieces[i].begin, pieces[i].end);
    EXPECT_LE(pieces[i].end, text.size());
    EXPECT_LE(begin, pieces[i].begin);
    begin = pieces[i].begin;
  }
}

void check_decode(const Tokenizer& tokenizer, const Json& row, const Ids& ids, const std::string& text) {
  const std::string plain = tokenizer.decode(ids, false, false), skipped = tokenizer.decode(ids, true, false);
  if (row.contains("dec"))
    EXPECT_EQ(plain, row["dec"].get<std::string>());
  else if (row.contains("dec_fnv"))
    EXPECT_EQ(fnv_of(plain), row["dec_fnv"].get<std::string>());
  else
    EXPECT_EQ(plain, text);
  if (row.contains("dec_skip"))
    EXPECT_EQ(skipped, row["dec_skip"].get<std::string>());
  else if (row.contains("dec_skip_fnv"))
    EXPECT_EQ(fnv_of(skipped), row["dec_skip_fnv"].get<std::string>());
  else
    EXPECT_EQ(skipped, plain);
  if (!row.contains("dec_clean")) return;
  EXPECT_EQ(tokenizer.decode(ids, false, true), row["dec_clean"].get<std::string>());
  EXPECT_EQ(tokenizer.decode(ids), plain);  // tokens of bytes keep their blanks, though a configuration asks otherwise
}

TEST_P(Golden, Ids) {
  const auto all = rows("ids");
  ASSERT_GT(all.size(), 100u);
  for (const Json& row : all) {
    const std::string id = row["id"], text = row.contains("text") ? row["text"].get<std::string>() : strings().at(id);
    SCOPED_TRACE(id);
    if (row.value("tie", false)) continue;
    const Ids ids = tokenizer_->encode(text);
    if (row.contains("ids")) {
      EXPECT_EQ(ids, row["ids"].get<Ids>());
    } else {
      EXPECT_EQ(ids.size(), row["n"].get<size_t>());
      EXPECT_EQ(fnv_of(ids), row["fnv"].get<std::string>());
    }
    Ids wanted = row.value("bos", Ids());
    wanted.insert(wanted.end(), ids.begin(), ids.end());
    for (const int32_t end : row.value("eos", Ids())) wanted.push_back(end);
    EXPECT_EQ(tokenizer_->encode(text, true), wanted);
    check_decode(*tokenizer_, row, ids, text);
    check_offsets(*tokenizer_, text, ids);
  }
}

TEST_P(Golden, Decode) {
  for (const Json& row : rows("decode")) {
    SCOPED_TRACE(row["ids"].dump());
    check_decode(*tokenizer_, row, row["ids"].get<Ids>(), "");
  }
}

TEST_P(Golden, Stream) {
  for (const Json& row : rows("stream")) {
    SCOPED_TRACE(row["ids"].dump());
    const Ids ids = row["ids"].get<Ids>();
    StreamDecoder stream(tokenizer_, row["skip_special"].get<bool>());
    std::vector<std::string> chunks;
    for (const int32_t id : ids) chunks.push_back(stream.push(id));
    EXPECT_EQ(chunks, row["chunks"].get<std::vector<std::string>>());
    EXPECT_EQ(stream.flush(), row["flush"].get<std::string>());
    EXPECT_EQ(stream.flush(), "");
  }
}

// Of every golden text, in any tokenizer: the chunks join to what decode() says.
TEST_P(Golden, StreamJoinsToDecode) {
  for (const auto& [id, text] : strings()) {
    const Ids ids = tokenizer_->encode(text);
    if (ids.size() > 2000) continue;
    StreamDecoder stream(tokenizer_);
    std::string joined;
    for (const int32_t token : ids) joined += stream.push(token);
    joined += stream.flush();
    EXPECT_EQ(joined, tokenizer_->decode(ids, false, false)) << id;
  }
}

std::string test_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}
TEST(Stream, LongRunsOfByteTokensAreShownAsTheyCome) {
  const auto tokenizer = golden_text::tokenizer("tiny-spm-bpe");
  std::string text;
  for (int i = 0; i < 200; ++i) text += "\u1780\U0001E900\u0531";  // scripts that its vocabulary does not have
  const auto ids = tokenizer->encode(text);
  ASSERT_GT(ids.size(), 1000u);
  StreamDecoder stream(tokenizer);
  std::string shown;
  size_t behind = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    shown += stream.push(ids[i]);
    behind = std::max(behind, i - std::min(i, shown.size()));
  }
  EXPECT_EQ(shown + stream.flush(), tokenizer->decode(ids));
  EXPECT_LT(behind, 8u);
}

INSTANTIATE_TEST_SUITE_P(Own, Golden,
                         testing::Values("tiny-qwen3", "tiny-internvl3", "tiny-llama3", "tiny-spm-bpe",
                                         "tiny-spm-unigram"),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Real, Golden, testing::Values("qwen2.5", "qwen3", "gpt2", "phi3"), test_name);

void check_pieces(const std::string& file, const Tokenizer& tokenizer) {
  const auto all = lines(*find("pretok/" + file + ".jsonl"));
  ASSERT_GT(all.size(), 100u);
  for (const Json& row : all) {
    const std::string id = row["id"];
    EXPECT_EQ(tokenizer.pre_tokenize(strings().at(id)), row["pieces"].get<std::vector<std::string>>()) << id;
  }
}

TEST(PreTokenizer, Qwen2) { check_pieces("qwen2", *golden_text::tokenizer("tiny-qwen3")); }
TEST(PreTokenizer, Llama3) { check_pieces("llama3", *golden_text::tokenizer("tiny-llama3")); }
TEST(PreTokenizer, Gpt2) {
  const auto made = Tokenizer::from_json(
      R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false}})");
  check_pieces("gpt2", *made);
}

TEST(NormalForm, GoldenNfc) {
  const auto path = find("nfc.jsonl");
  if (!path) GTEST_SKIP() << golden_text::kNoGolden;
  const auto tokenizer = golden_text::tokenizer("tiny-qwen3");
  for (const Json& row : lines(*path)) {
    EXPECT_EQ(tokenizer->normalize(row["in"].get<std::string>()), row["nfc"].get<std::string>()) << row["in"].dump();
    EXPECT_EQ(unicode::normalize(row["in"].get<std::string>(), unicode::Form::Nfc), row["nfc"].get<std::string>());
  }
}

TEST(InvalidUtf8, IsReadAsReplacements) {
  const auto tiny = golden_text::tokenizer("tiny-qwen3"), real = golden_text::tokenizer("qwen2.5");
  for (const Json& row : lines(*find("invalid_utf8.jsonl"))) {
    const std::string bytes = hex_bytes(row["bytes_hex"]);
    SCOPED_TRACE(row["bytes_hex"].get<std::string>());
    EXPECT_EQ(unicode::lossy(bytes), row["lossy"].get<std::string>());
    EXPECT_EQ(tiny->encode(bytes), row["tiny-qwen3"].get<Ids>());
    check_offsets(*tiny, bytes, row["tiny-qwen3"].get<Ids>());
    if (real) {
      EXPECT_EQ(real->encode(bytes), row["qwen2.5"].get<Ids>());
    }
  }
}

// Cases of transformers' own Qwen2Tokenizer, for tokenizer.json and for vocab.json with merges.txt.
TEST(Qwen2Small, BothFileFormats) {
  const auto dir = golden_text::own() / "tokenizers/qwen2-small";
  const test::Folder folder;
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer_config.json"})
    golden_text::fs::copy_file(dir / name, folder.path / name);
  const Json golden = Json::parse(read_file(dir / "golden.json"));
  for (const auto& tokenizer :
       {Tokenizer::load(dir), Tokenizer::load(folder.path), Tokenizer::load(dir / "tokenizer.json")}) {
    for (const Json& row : golden["cases"]) {
      const Ids ids = tokenizer->encode(row["text"].get<std::string>());
      SCOPED_TRACE(row["text"].dump());
      EXPECT_EQ(ids, row["ids"].get<Ids>());
      std::vector<std::string> pieces;
      for (const int32_t id : ids) pieces.push_back(tokenizer->piece(id));
      EXPECT_EQ(pieces, row["tokens"].get<std::vector<std::string>>());
      EXPECT_EQ(tokenizer->decode(ids), row["decoded"].get<std::string>());
      // decoded_skip_special is not compared: those tokenizers were made without the list of additional special tokens.
    }
    for (const Json& row : golden["invalid_utf8_decode"])
      EXPECT_EQ(tokenizer->decode(row["ids"].get<Ids>()), row["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer->special_token("eos_token"), "<|im_end|>");
    EXPECT_EQ(tokenizer->eos(), tokenizer->id("<|im_end|>"));
    EXPECT_FALSE(tokenizer->bos());
  }
}

// The token masks that transformers makes from the spans of {% generation %}.
TEST(Offsets, GenerationMasks) {
  const auto spans = find("chat/masks.jsonl"), tokens = find("chat/mask_tokens.jsonl");
  if (!spans || !tokens) GTEST_SKIP() << golden_text::kNoGolden;
  std::map<std::string, Json> cases;
  for (const Json& row : lines(*spans)) cases[row["id"]] = row;
  for (const char* name : {"tiny-qwen3", "qwen3"}) {
    const auto tokenizer = golden_text::tokenizer(name);
    if (!tokenizer) GTEST_SKIP() << golden_text::kNoGolden;
    for (const Json& row : lines(*tokens)) {
      if (!row.contains(name)) continue;
      const Json& chat = cases.at(row["case"]);
      const std::string text = chat["expected"];
      std::vector<uint32_t> byte_of;  // of each code point
      for (uint32_t i = 0; i < text.size(); ++i)
        if (!unicode::is_continuation(text[i])) byte_of.push_back(i);
      const auto pieces = tokenizer->encode_offsets(text);
      const auto holding = [&](uint32_t byte) {  // first token over this byte
        size_t i = 0;
        while (i < pieces.size() && !(pieces[i].begin <= byte && byte < pieces[i].end)) ++i;
        return i;
      };
      std::vector<std::vector<size_t>> runs;
      for (const Json& span : chat["spans"])
        if (span[0] < span[1])
          runs.push_back({holding(byte_of[span[0].get<size_t>()]), holding(byte_of[span[1].get<size_t>() - 1]) + 1});
      EXPECT_EQ(pieces.size(), row[name]["n"].get<size_t>());
      EXPECT_EQ(runs, row[name]["runs"].get<std::vector<std::vector<size_t>>>()) << row["case"];
    }
  }
}

}  // namespace
}  // namespace apus
