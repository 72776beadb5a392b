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
#include "guide/guide.h"
#include "tests/fuzz/guide_words.h"
#include "tests/guide/allowed.h"

namespace {

void follow(const std::shared_ptr<const apus::Tokenizer>& words, apus::Constraint& guide, uint64_t seed, bool json) {
  apus::Random random(seed);
  std::string text;
  const int32_t stop = *words->id("<end>");
  for (int i = 0; i < 60; ++i) {
    const std::vector<int32_t> tokens = apus::test::allowed(guide);
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
  static const auto words =
      apus::fuzz::byte_tokenizer({"{\"", "\":", "\",", "\"}", "true", "null", "ab", "12", "[["}, {"<end>"});
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
