// SPDX-License-Identifier: Apache-2.0
// How byte-level vocabularies cut text before they merge, by the names that GGUF files have for it.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"
#include "gguf/import.h"
#include "text/splitters.h"

namespace apus {

namespace {

const char* const kGpt4oRegex =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kTekkenRegex = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                                 R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                                 R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const char* const kQwen35Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kBailingRegex =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
const char* const kExaoneMoeRegex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
const char* const kJais2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|)"
    R"(\s{1,2}(?!\S)|\s{1})";
// Chinese and Japanese letters; then the rest.
const char* const kDeepseekLetters = "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+";
const char* const kDeepseekRegex =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json byte_level(bool cuts) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", cuts}};
}

// One after the other.
Json by_regexes(const std::vector<const char*>& regexes) {
  Json all = Json::array();
  for (const char* regex : regexes)
    all.push_back({{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}});
  all.push_back(byte_level(false));
  return {{"type", "Sequence"}, {"pretokenizers", std::move(all)}};
}
Json by_regex(const char* regex) { return by_regexes({regex}); }

Json single_digits() {
  const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  return {{"type", "Sequence"}, {"pretokenizers", {digits, byte_level(true)}}};
}

struct Named {
  std::vector<const char*> names;  // the first is written
  CutRule rule;
};

const std::vector<Named>& rules() {
  static const Json nfc = {{"type", "NFC"}};
  static const std::vector<Named> all = {
      {{"hunyuan", "stablelm2", "solar-open"}, {nullptr, by_regex(kQwen2Regex)}},
      {{"qwen2", "deepseek-r1-qwen", "megrez"}, {nfc, by_regex(kQwen2Regex)}},
      {{"qwen35"}, {nfc, by_regex(kQwen35Regex)}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "lfm2", "pixtral"},
       {nullptr, by_regex(kLlama3Regex), true}},
      {{"glm4", "glm5", "chatglm-bpe", "dbrx", "smaug-bpe"}, {nullptr, by_regex(kLlama3Regex)}},
      {{"gpt-2", "exaone4", "olmo", "phi-2", "mpt", "trillion", "granite-docling"}, {nullptr, byte_level(true)}},
      {{"deepseek-v3", "hunyuan-dense"}, {nullptr, by_regexes({R"(\p{N}{1,3})", kDeepseekLetters, kDeepseekRegex})}},
      {{"bailingmoe2", "bailingmoe"}, {nullptr, by_regex(kBailingRegex)}},
      {{"jais-2"}, {nullptr, by_regex(kJais2Regex)}},
      {{"exaone-moe"}, {nullptr, by_regex(kExaoneMoeRegex)}},
      {{"smollm", "refact", "starcoder", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"},
       {nullptr, single_digits()}},
      {{"tekken"}, {nullptr, by_regex(kTekkenRegex), true}},
      {{"gpt-4o", "llama4", "minimax-m2", "kanana2"}, {nullptr, by_regex(kGpt4oRegex), true}},
  };
  return all;
}

// What cuts, without what only concerns offsets.
Json essence(const Json& cutter) {
  if (!cutter.is_object()) return cutter;
  const std::string type = cutter.value("type", "");
  if (type == "Sequence" && cutter.contains("pretokenizers")) {
    Json all = Json::array();
    for (const Json& each : cutter["pretokenizers"]) all.push_back(essence(each));
    return all;
  }
  if (type == "Split") return {type, cutter.value("pattern", Json()), cutter.value("behavior", Json())};
  if (type == "ByteLevel") return {type, cutter.value("use_regex", true)};
  if (type == "Digits") return {type, cutter.value("individual_digits", false)};
  return cutter;
}

}  // namespace

CutRule cut_rule(const std::string& name, const std::string& where) {
  std::vector<std::string> known;
  for (const Named& rule : rules())
    for (const char* each : rule.names) {
      if (name == each) return rule.rule;
      known.push_back(each);
    }
  fail(Fault::Model, where, ": tokenizer.ggml.pre '", name.substr(0, 100),
       "', by which text is cut, is not known; known: ", join(known));
}

std::string cut_name(const Json& tokenizer) {
  const Json wanted = essence(tokenizer.value("pre_tokenizer", Json()));
  const bool ignores = tokenizer.contains("model") && tokenizer["model"].value("ignore_merges", Json()) == true;
  std::string found;
  for (const Named& rule : rules())
    if (essence(rule.rule.pre_tokenizer) == wanted && (found.empty() || rule.rule.ignore_merges == ignores))
      found = rule.names[0];
  return found;
}

}  // namespace apus
