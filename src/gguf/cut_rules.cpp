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

Json byte_level(bool cuts) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", cuts}};
}

Json by_regex(const char* regex) {
  const Json split = {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, byte_level(false)}}};
}

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
      {{"qwen2", "deepseek-r1-qwen", "megrez"}, {nfc, by_regex(kQwen2Regex)}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3"}, {nullptr, by_regex(kLlama3Regex), true}},
      {{"glm4", "chatglm-bpe", "dbrx", "smaug-bpe"}, {nullptr, by_regex(kLlama3Regex)}},
      {{"gpt-2", "exaone4"}, {nullptr, byte_level(true)}},
      {{"smollm", "refact", "starcoder", "command-r", "codeshell", "exaone", "minerva-7b"}, {nullptr, single_digits()}},
      {{"tekken"}, {nullptr, by_regex(kTekkenRegex), true}},
      {{"gpt-4o", "llama4"}, {nullptr, by_regex(kGpt4oRegex), true}},
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
