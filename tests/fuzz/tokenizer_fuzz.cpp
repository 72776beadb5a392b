// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json of any bytes, or a small good one with one part exchanged for any bytes (the first byte says which):
// it loads or is refused; what loads encodes and decodes any text within bounds. The same of SentencePiece's and
// tiktoken's files.
//   input: kind, file or part, '\1', text        ('\1' cannot stand in JSON)
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace {

using apus::Tokenizer;

void must(bool holds) {
  if (!holds) __builtin_trap();
}

const char* const kPlaces[] = {"added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model"};

// A good tokenizer: bytes of the alphabet a-h, some merges.
std::string with_part(size_t place, std::string_view part) {
  const char* const good[] = {
      R"([{"id": 20, "content": "<x>", "special": true}])",
      "null",
      R"({"type": "ByteLevel", "add_prefix_space": false})",
      "null",
      R"({"type": "ByteLevel"})",
      R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "aa": 5, "aaaa": 6, "Ġ": 7, "Ġa": 8},
          "merges": ["a b", ["ab", "c"], "a a", "aa aa", "Ġ a"]})"};
  std::string json = "{";
  for (size_t i = 0; i < std::size(kPlaces); ++i) {
    json += (i ? ",\"" : "\"") + std::string(kPlaces[i]) + "\":";
    json += i == place ? part : std::string_view(good[i]);
  }
  return json + "}";
}

std::string made(uint8_t kind, std::string_view part) {
  constexpr size_t places = std::size(kPlaces);
  if (kind % 8 < places) return with_part(kind % 8, part);
  if (kind % 8 == places) {  // a pattern
    if (apus::unicode::valid_prefix(part) != part.size()) return {};
    return with_part(2, R"({"type": "Split", "behavior": "Isolated", "pattern": {"Regex": )" +
                            apus::Json(std::string(part)).dump() + "}}");
  }
  return std::string(part);
}

void use(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text) {
  const std::vector<int32_t> ids = tokenizer->encode(text, true);
  const auto pieces = tokenizer->encode_offsets(text, true);
  must(pieces.size() == ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    must(pieces[i].id == ids[i]);
    must(pieces[i].begin <= pieces[i].end && pieces[i].end <= text.size());
  }
  tokenizer->encode(text, false, true);
  const std::string decoded = tokenizer->decode(ids, false, false);
  must(apus::unicode::valid_prefix(decoded) == decoded.size());
  tokenizer->decode(ids, true, true);
  apus::StreamDecoder stream(tokenizer);
  for (const int32_t id : ids) stream.push(id);
  stream.flush();
  for (const char c : text) {  // ids of any kind, those outside of the vocabulary too
    const int32_t id = static_cast<unsigned char>(c) - 8;
    stream.push(id);
    tokenizer->piece(id);
    tokenizer->token_bytes(id);
  }
  tokenizer->pre_tokenize(text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t cut = std::min(all.find('\1'), all.size());
  try {
    const bool other = data[0] % 8 == 7 && data[0] >= 128;
    const auto tokenizer = other ? Tokenizer::from_file(all.substr(0, cut), "tiktoken.model")
                                 : Tokenizer::from_json(made(data[0], all.substr(0, cut)), {}, "fuzz");
    use(tokenizer, cut < all.size() ? all.substr(cut + 1) : std::string_view("aab abc <x>  aaaaaa"));
  } catch (const apus::Error&) {}
  return 0;
}
