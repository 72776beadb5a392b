// SPDX-License-Identifier: Apache-2.0
// Schemas and patterns of any kind: they are refused with a reason, or followed; what is allowed by a mask is taken,
// and answers made of allowed tokens parse.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/random.h"
#include "engine/guide.h"

namespace {

// All bytes, and a few longer tokens.
std::shared_ptr<const apus::Tokenizer> tokenizer() {
  apus::Json vocabulary = apus::Json::object();
  int id = 0;
  for (char32_t b = 0; b < 256; ++b) {
    // The byte alphabet of GPT-2: printable bytes stand for themselves, the others for characters from 256 on.
    const bool printable = (b > 32 && b < 127) || (b > 160 && b != 173);
    static char32_t others = 256;
    const char32_t c = printable ? b : others++;
    std::string text;
    if (c < 0x80)
      text = static_cast<char>(c);
    else
      text = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    vocabulary[text] = id++;
  }
  for (const char* token : {"{\"", "\":", "\",", "\"}", "true", "null", "ab", "12", "[["}) vocabulary[token] = id++;
  const apus::Json file = {
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", apus::Json::array()}}},
      {"pre_tokenizer",
       {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}},
      {"added_tokens",
       {{{"id", id},
         {"content", "<end>"},
         {"special", true},
         {"single_word", false},
         {"lstrip", false},
         {"rstrip", false},
         {"normalized", false}}}}};
  return apus::Tokenizer::from_json(file.dump());
}

void follow(const std::shared_ptr<const apus::Tokenizer>& words, apus::Constraint& guide, uint64_t seed, bool json) {
  apus::Random random(seed);
  std::string text;
  const int32_t stop = *words->id("<end>");
  for (int i = 0; i < 60; ++i) {
    std::vector<uint64_t> mask;
    guide.allowed(mask);
    std::vector<int32_t> tokens;
    for (size_t t = 0; t < mask.size() * 64; ++t)
      if (mask[t / 64] >> (t % 64) & 1) tokens.push_back(static_cast<int32_t>(t));
    if (tokens.empty()) std::abort();  // a dead end
    if (json && tokens.back() == stop && !apus::Json::accept(text)) std::abort();
    if (guide.finished()) return;
    const int32_t token = tokens[random.below(tokens.size())];
    if (token == stop) return;
    guide.accept(token);
    text += words->token_bytes(token);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto words = tokenizer();
  static const int32_t stop = *words->id("<end>");
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto vocabulary = apus::make_guide_vocabulary(*words, std::span(&stop, 1));
  for (const bool schema : {true, false}) {
    try {
      const auto guide = schema
                             ? apus::guide_json_schema(vocabulary, apus::parse_json(text, "schema", apus::Fault::Usage))
                             : apus::guide_regex(vocabulary, text);
      follow(words, *guide, size, schema);
    } catch (const apus::Error& error) {
      if (error.at.fault != apus::Fault::Usage) std::abort();
    }
  }
  return 0;
}
