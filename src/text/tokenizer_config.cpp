// SPDX-License-Identifier: Apache-2.0
// What stands beside tokenizer.json: tokenizer_config.json, special_tokens_map.json, and what the class named there
// implies, as transformers' tokenizer classes have it.
#include "text/tokenizer_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "base/log.h"
#include "text/tokenizer_parts.h"

namespace apus {

namespace {
constexpr size_t kMaxAdded = 1 << 18, kMaxAddedLength = 1 << 16;
}

void add_token(TokenizerParts& parts, AddedToken token, const std::string& where, int32_t* next) {
  if (token.content.empty()) return;
  if (parts.added_id.count(token.content)) return;
  if (const auto own = parts.model->id(token.content)) {
    token.id = *own;
  } else if (next) {
    if (token.id >= 0 && token.id != *next && !parts.renumbered) {
      log_warning(where, ": '", token.content, "' gets the id ", *next, ", as the tokenizers library counts, and not ",
                  token.id);
      parts.renumbered = true;
    }
    token.id = (*next)++;
  }
  require(token.id >= 0 && token.id <= kMaxId, Fault::Model, where, ".id: ", token.id, " is not between 0 and ",
          kMaxId);
  require(token.content.size() <= kMaxAddedLength, Fault::Model, where, ".content: longer than ", kMaxAddedLength,
          " bytes");
  require(parts.added.size() < kMaxAdded, Fault::Model, where, ": more than ", kMaxAdded, " added tokens");
  parts.added_id[token.content] = token.id;
  parts.added.push_back(std::move(token));
}

AddedToken added_token(const JsonPart& part, int64_t id, bool special) {
  AddedToken token;
  token.id = static_cast<int32_t>(std::clamp<int64_t>(id, -1, kMaxId + int64_t{1}));
  token.content = part.text("content");
  token.single_word = part.flag("single_word", false);
  token.lstrip = part.flag("lstrip", false);
  token.rstrip = part.flag("rstrip", false);
  token.special = part.flag("special", special);
  token.normalized = part.flag("normalized", !token.special);
  return token;
}

int32_t next_id(const TokenizerParts& parts) {
  int32_t next = 0;
  for (int32_t id = 0; id < parts.model->size(); ++id) next += parts.model->has(id);
  for (const AddedToken& token : parts.added) next = std::max(next, token.id + 1);
  return next;
}

namespace {

constexpr const char* kSpecialNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};

// A token is given as text or as {"content": text, ...}.
std::string token_text(const Json& token, const JsonPart& part, const char* key) {
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content") && token["content"].is_string())
    return token["content"].get<std::string>();
  part.error(key, "a token is a string or an object with \"content\"");
}

// "Llama" of LlamaTokenizer and LlamaTokenizerFast.
std::string family_of(const Json& config) {
  const auto it = config.find("tokenizer_class");
  std::string name = it != config.end() && it->is_string() ? it->get<std::string>() : "";
  for (const std::string_view ending : {"Fast", "Tokenizer"})
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  return name;
}

void read_special_names(TokenizerParts& parts, const JsonPart& config) {
  for (const char* name : kSpecialNames)
    if (config.has(name) && !parts.special_tokens.count(name))
      parts.special_tokens[name] = token_text(config.json()[name], config, name);
  const char* more = "additional_special_tokens";
  if (!config.has(more) || !parts.additional_special_tokens.empty()) return;
  if (!config.json()[more].is_array()) config.error(more, "a list is needed");
  for (const Json& token : config.json()[more])
    parts.additional_special_tokens.push_back(token_text(token, config, more));
}

void read_added(TokenizerParts& parts, const JsonPart& config) {
  if (!config.has("added_tokens_decoder")) return;
  const JsonPart table = config.part("added_tokens_decoder");
  if (!table.json().is_object()) config.error("added_tokens_decoder", "an object is needed");
  int32_t next = next_id(parts);
  std::map<int64_t, AddedToken> tokens;  // in the order of their ids
  for (const auto& [key, value] : table.json().items()) {
    const JsonPart part(value, table.where() + "." + key);
    const bool number = !key.empty() && key.size() < 10 &&
                        std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
    require(number, Fault::Model, part.where(), ": the key must be an id");
    tokens.emplace(std::stol(key), added_token(part, std::stol(key), false));
  }
  // Of a token that tokenizer.json has as well only this counts: it may be declared special here.
  std::unordered_set<std::string> special;
  for (auto& [id, token] : tokens) {
    if (token.special) special.insert(token.content);
    add_token(parts, std::move(token), str(table.where(), ".", id), &next);
  }
  for (AddedToken& token : parts.added) token.special |= special.count(token.content) > 0;
}

std::optional<int32_t> special_id(const TokenizerParts& parts, const char* name) {
  const auto token = parts.special_tokens.find(name);
  if (token == parts.special_tokens.end()) return std::nullopt;
  const auto it = parts.added_id.find(token->second);
  return it != parts.added_id.end() ? std::optional(it->second) : parts.model->id(token->second);
}

// add_bos_token and add_eos_token of the configuration overrule the post-processor. Some classes leave nothing of it.
void apply_flags(TokenizerParts& parts, const JsonPart& config) {
  const std::string family = family_of(config.json());
  const bool frames = family == "Llama" || family == "CodeLlama" || family == "Gemma" || family == "Cohere";
  const auto apply = [&](const char* key, const char* name, std::vector<int32_t>& side, bool front) {
    const auto id = special_id(parts, name);
    if (!id || (!config.has(key) && !frames)) return;
    const bool wanted = config.flag(key, front), there = std::find(side.begin(), side.end(), *id) != side.end();
    if (frames)
      side.assign(wanted, *id);
    else if (!wanted)
      side.erase(std::remove(side.begin(), side.end(), *id), side.end());
    else if (!there)
      side.insert(front ? side.begin() : side.end(), *id);
  };
  apply("add_bos_token", "bos_token", parts.marks.before, true);
  apply("add_eos_token", "eos_token", parts.marks.after, false);
}

}  // namespace

std::string implied_special_token(const Json& config, std::string_view name) {
  struct Implied {
    std::string_view family, names, token;
  };
  static constexpr Implied kImplied[] = {
      {"Llama", "unk_token", "<unk>"},
      {"Llama", "bos_token", "<s>"},
      {"Llama", "eos_token", "</s>"},
      {"CodeLlama", "unk_token", "<unk>"},
      {"CodeLlama", "bos_token", "<s>"},
      {"CodeLlama", "eos_token", "</s>"},
      {"Gemma", "unk_token", "<unk>"},
      {"Gemma", "bos_token", "<bos>"},
      {"Gemma", "eos_token", "<eos>"},
      {"Gemma", "pad_token", "<pad>"},
      {"Qwen2", "unk_token eos_token pad_token", "<|endoftext|>"},
      {"GPT2", "unk_token bos_token eos_token", "<|endoftext|>"},
  };
  const std::string family = family_of(config);
  for (const Implied& implied : kImplied)
    if (implied.family == family && implied.names.find(name) != std::string_view::npos)
      return std::string(implied.token);
  return {};
}

// special_tokens_map.json counts where tokenizer_config.json is of the older kind, which does not list the tokens.
void read_config(TokenizerParts& parts, const JsonPart& config, const JsonPart& map) {
  if (!config.has("added_tokens_decoder")) read_special_names(parts, map);
  read_special_names(parts, config);
  read_special_names(parts, map);
  parts.clean_up = config.flag("clean_up_tokenization_spaces", false);
  if (config.has("model_max_length") && config.json()["model_max_length"].is_number()) {
    const double length = config.json()["model_max_length"].get<double>();  // some files say 1e30 for "no limit"
    parts.model_max_length = length >= 1 && length < 1e12 ? static_cast<int64_t>(length) : 0;
  }
  read_added(parts, config);
  for (const char* name : kSpecialNames) {
    if (parts.special_tokens.count(name) || config.json().contains(name)) continue;  // null: it is to have none
    const std::string token = implied_special_token(config.json(), name);
    if (parts.added_id.count(token) || (!token.empty() && parts.model->id(token))) parts.special_tokens[name] = token;
  }
  apply_flags(parts, config);
}

}  // namespace apus
