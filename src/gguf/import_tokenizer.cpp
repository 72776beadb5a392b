// SPDX-License-Identifier: Apache-2.0
// tokenizer.json of a GGUF file's lists: byte-level vocabularies ("gpt2") with their merges, and SentencePiece's
// ("llama"), whose merges follow from the scores.
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "gguf/import.h"
#include "text/tokenizer_source.h"

namespace apus {

namespace {

constexpr const char* kModelKey = "tokenizer.ggml.model";
constexpr const char* kTokensKey = "tokenizer.ggml.tokens";

std::string setting(const char* name) { return std::string("tokenizer.ggml.") + name; }

const GgufValue::Strings& tokens_of(const GgufHeader& header) {
  const auto* tokens = header.strings(kTokensKey);
  require(tokens && !tokens->empty(), Fault::Model, header.where, ": '", kTokensKey,
          "' is missing: the file has no vocabulary");
  return *tokens;
}

bool sentence_pieces(const GgufHeader& header) {
  const std::string model = header.text(kModelKey);
  require(model == "gpt2" || model == "llama", Fault::Model, header.where, ": the tokenizer '", model.substr(0, 100),
          "' is not read; gpt2 (byte-level BPE) and llama (SentencePiece) are");
  return model == "llama";
}

// Kind of every token; normal where nothing is said.
std::vector<int64_t> kinds_of(const GgufHeader& header) {
  const size_t count = tokens_of(header).size();
  const auto* kinds = header.integers(setting("token_type"));
  require(!kinds || kinds->size() == count, Fault::Model, header.where, ": '", setting("token_type"), "' has ",
          kinds ? kinds->size() : 0, " entries for ", count, " tokens");
  return kinds ? *kinds : std::vector<int64_t>(count, gguf_token::kNormal);
}

bool is_added(int64_t kind) { return kind == gguf_token::kControl || kind == gguf_token::kUserDefined; }

std::string pre_of(const GgufHeader& header) {
  if (std::string pre = header.text("tokenizer.ggml.pre"); !pre.empty() && pre != "default") return pre;
  const bool qwen = header.text("general.architecture").starts_with("qwen");
  log_warning(header.where, ": 'tokenizer.ggml.pre' does not say how text is cut, as in older files; taken as ",
              qwen ? "qwen2" : "llama-bpe");
  return qwen ? "qwen2" : "llama-bpe";
}

bool adds_bos(const GgufHeader& header) {
  if (const auto said = header.flag(setting("add_bos_token"))) return *said;
  if (sentence_pieces(header)) return true;
  const std::string pre = header.text("tokenizer.ggml.pre");
  return pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3" || pre == "tekken";
}

// The token of an id setting; empty: none.
std::string special(const GgufHeader& header, const char* name) {
  const auto id = header.integer(setting(name));
  const auto& tokens = tokens_of(header);
  if (!id) return "";
  require(*id >= 0 && *id < static_cast<int64_t>(tokens.size()), Fault::Model, header.where, ": '", setting(name),
          "' = ", *id, " is no token");
  return tokens[static_cast<size_t>(*id)];
}

Json scored_merges(const GgufHeader& header, const std::vector<int64_t>& kinds) {
  const auto& tokens = tokens_of(header);
  const auto* scores = header.numbers(setting("scores"));
  require(scores && scores->size() == tokens.size(), Fault::Model, header.where, ": '", setting("scores"),
          "' must have a number for each of the ", tokens.size(), " tokens");
  std::vector<bool> normal;
  for (const int64_t kind : kinds) normal.push_back(kind == gguf_token::kNormal);
  Json out = Json::array();
  for (const auto& [left, right] : merges_by_score(tokens, {scores->begin(), scores->end()}, normal))
    out.push_back({tokens[left], tokens[right]});
  return out;
}

// Tokens that are cut out of a text before anything else.
Json added_tokens(const GgufHeader& header, const std::vector<int64_t>& kinds) {
  Json out = Json::array();
  const auto& tokens = tokens_of(header);
  for (size_t i = 0; i < tokens.size(); ++i)
    if (is_added(kinds[i]) || kinds[i] == gguf_token::kUnknown)
      out.push_back({{"id", i},
                     {"content", tokens[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", kinds[i] != gguf_token::kUserDefined}});
  return out;
}

// Added tokens that follow the others count on from them; where there are gaps the vocabulary must say their ids.
Json vocabulary(const GgufHeader& header, const std::vector<int64_t>& kinds) {
  const auto& tokens = tokens_of(header);
  std::vector<size_t> own, added;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (kinds[i] != gguf_token::kUnused) (is_added(kinds[i]) ? added : own).push_back(i);
  const bool follow =
      own.empty() || (own.back() + 1 == own.size() &&
                      (added.empty() || (added[0] == own.size() && added.back() + 1 == own.size() + added.size())));
  Json vocab = Json::object();
  for (size_t i = 0; i < tokens.size(); ++i)
    if (kinds[i] != gguf_token::kUnused && !(follow && is_added(kinds[i])))
      vocab.get_ref<Json::object_t&>().emplace_back(tokens[i], i);
  return vocab;
}

Json byte_stages(const GgufHeader& header, bool& ignore_merges) {
  const CutRule rule = cut_rule(pre_of(header), header.where);
  ignore_merges = rule.ignore_merges;
  return {
      {"normalizer", rule.normalizer},
      {"pre_tokenizer", rule.pre_tokenizer},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}}};
}

Json bos_processor(const GgufHeader& header) {
  const std::string bos = special(header, "bos_token_id");
  if (!adds_bos(header) || bos.empty()) return nullptr;
  return marks_before({{bos, *header.integer(setting("bos_token_id"))}});
}

// The file's chat templates: one text, or a list where there are several.
Json chat_templates(const GgufHeader& header) {
  const std::string key = "tokenizer.chat_template", usual = header.text(key);
  const auto* names = header.strings("tokenizer.chat_templates");
  if (!names || names->empty()) return usual.empty() ? Json() : Json(usual);
  Json all = Json::array();
  if (!usual.empty()) all.push_back({{"name", "default"}, {"template", usual}});
  for (const std::string& name : *names)
    if (const std::string text = header.text(key + "." + name); !text.empty() && name != "default")
      all.push_back({{"name", name}, {"template", text}});
  return all;
}

}  // namespace

Json tokenizer_of_gguf(const GgufHeader& header) {
  const bool pieces = sentence_pieces(header);
  const std::vector<int64_t> kinds = kinds_of(header);
  bool ignore_merges = false;
  const Json stages = pieces ? piece_stages(header.flag(setting("add_space_prefix")).value_or(true))
                             : byte_stages(header, ignore_merges);
  const auto* merges = header.strings(setting("merges"));
  require(pieces || merges, Fault::Model, header.where, ": '", setting("merges"), "' is missing");
  const auto unknown = std::find(kinds.begin(), kinds.end(), gguf_token::kUnknown);
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", pieces && unknown != kinds.end()
                                  ? Json(tokens_of(header)[static_cast<size_t>(unknown - kinds.begin())])
                                  : Json()},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", pieces},
                {"byte_fallback", pieces},
                {"ignore_merges", ignore_merges},
                {"vocab", vocabulary(header, kinds)},
                {"merges", pieces ? scored_merges(header, kinds) : Json(*merges)}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_tokens(header, kinds)},
          {"normalizer", stages["normalizer"]},
          {"pre_tokenizer", stages["pre_tokenizer"]},
          {"post_processor", bos_processor(header)},
          {"decoder", stages["decoder"]},
          {"model", std::move(model)}};
}

Json tokenizer_config_of_gguf(const GgufModel& model) {
  const GgufHeader& header = model.header();
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  for (const auto& [key, name] : {std::pair{"bos_token", "bos_token_id"},
                                  {"eos_token", "eos_token_id"},
                                  {"unk_token", "unknown_token_id"},
                                  {"pad_token", "padding_token_id"}}) {
    const std::string token = special(header, name);
    config[key] = token.empty() ? Json() : Json(token);
  }
  config["add_bos_token"] = adds_bos(header);
  if (header.flag(setting("add_eos_token")).value_or(false)) config["add_eos_token"] = true;
  if (const auto context = header.integer(model.key("context_length"))) config["model_max_length"] = *context;
  if (Json chat = chat_templates(header); !chat.is_null()) config["chat_template"] = std::move(chat);
  return config;
}

}  // namespace apus
