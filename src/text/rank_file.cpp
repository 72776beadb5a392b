// SPDX-License-Identifier: Apache-2.0
// tiktoken's files, and Mistral's of the same tokens as JSON. Whatever two tokens make a third are merged, the lowest
// rank first.
#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "base/base64.h"
#include "base/error.h"
#include "text/byte_alphabet.h"
#include "text/splitters.h"
#include "text/token_model.h"
#include "text/tokenizer_source.h"

namespace apus {

namespace {

// Runs of Chinese letters stand apart.
const char* const kKimiRegex =
    R"([\p{Han}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct RankedToken {
  std::string bytes;
  int32_t rank = 0;
};

std::vector<RankedToken> ranked_tokens(std::string_view text, const std::string& name) {
  std::vector<RankedToken> out;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1, ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t blank = line.find(' ');
    RankedToken token;
    const std::string_view rank = blank == std::string_view::npos ? "" : line.substr(blank + 1);
    const auto [last, error] = std::from_chars(rank.data(), rank.data() + rank.size(), token.rank);
    require(error == std::errc() && last == rank.data() + rank.size() && token.rank >= 0 && token.rank <= kMaxId,
            Fault::Model, name, ": line ", number, " is no token in base64 with its rank");
    try {
      token.bytes = from_base64(line.substr(0, blank));
    } catch (const Error&) {
      fail(Fault::Model, name, ": line ", number, ": the token is no base64");
    }
    if (!token.bytes.empty()) out.push_back(std::move(token));
  }
  require(!out.empty(), Fault::Model, name, " has no tokens");
  return out;
}

std::string spelled(std::string_view bytes) {
  std::string letters;
  byte_alphabet::append(letters, bytes);
  return json_string(letters);
}

void add_model(TokenizerSource& out, const std::vector<RankedToken>& tokens, const std::string& name) {
  std::unordered_map<std::string_view, int32_t> rank_of;
  std::string vocab = "{", merges = "[";
  for (const RankedToken& token : tokens) {
    require(rank_of.emplace(token.bytes, token.rank).second, Fault::Model, name, ": the token of rank ", token.rank,
            " is there twice");
    vocab += str(vocab.size() > 1 ? "," : "", spelled(token.bytes), ":", token.rank);
  }
  struct Merge {
    int32_t rank, left, right;
    std::string_view a, b;
  };
  std::vector<Merge> all;
  for (const RankedToken& token : tokens)
    for (size_t cut = 1; cut < token.bytes.size(); ++cut) {
      const std::string_view bytes = token.bytes, a = bytes.substr(0, cut), b = bytes.substr(cut);
      const auto left = rank_of.find(a), right = rank_of.find(b);
      if (left != rank_of.end() && right != rank_of.end())
        all.push_back({token.rank, left->second, right->second, a, b});
    }
  std::sort(all.begin(), all.end(), [](const Merge& x, const Merge& y) {
    return std::tuple(x.rank, x.left, x.right) < std::tuple(y.rank, y.left, y.right);
  });
  for (const Merge& m : all) merges += str(merges.size() > 1 ? "," : "", "[", spelled(m.a), ",", spelled(m.b), "]");
  out.model = {{"type", "\"BPE\""}, {"ignore_merges", "true"}, {"vocab", vocab + "}"}, {"merges", merges + "]"}};
}

Json stages_of(const std::string& regex, bool nfc) {
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const Json cut = {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}};
  return {{"normalizer", nfc ? Json{{"type", "NFC"}} : Json()},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {cut, bytes}}}},
          {"decoder", {{"type", "ByteLevel"}}}};
}

// What stands before the words where tekken.json does not say it.
const char* const kTekkenSpecials[] = {"<unk>",
                                       "<s>",
                                       "</s>",
                                       "[INST]",
                                       "[/INST]",
                                       "[AVAILABLE_TOOLS]",
                                       "[/AVAILABLE_TOOLS]",
                                       "[TOOL_RESULTS]",
                                       "[/TOOL_RESULTS]",
                                       "[TOOL_CALLS]",
                                       "[IMG]",
                                       "<pad>",
                                       "[IMG_BREAK]",
                                       "[IMG_END]",
                                       "[PREFIX]",
                                       "[MIDDLE]",
                                       "[SUFFIX]",
                                       "[SYSTEM_PROMPT]",
                                       "[/SYSTEM_PROMPT]",
                                       "[TOOL_CONTENT]"};

// The special tokens of tekken.json by their numbers; those between without a name of their own are numbered.
std::vector<std::string> tekken_specials(const Json& json, int64_t count, const std::string& name) {
  std::vector<std::string> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) out[i] = str("<SPECIAL_", i, ">");
  const auto put = [&](int64_t at, const std::string& token) {
    require(at >= 0 && at < count, Fault::Model, name, ": the special token of rank ", at, " lies behind the ", count,
            " that there are");
    out[static_cast<size_t>(at)] = token;
  };
  const Json said = json.value("special_tokens", Json());
  if (!said.is_array()) {
    for (size_t i = 0; i < std::size(kTekkenSpecials); ++i) put(static_cast<int64_t>(i), kTekkenSpecials[i]);
    return out;
  }
  for (const Json& each : said) {
    const JsonPart part(each, name + ": special_tokens");
    put(part.integer("rank", -1), part.text("token_str", ""));
  }
  return out;
}

// Special tokens that follow each other.
void add_specials(TokenizerSource& out, int64_t first, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    out.added.push_back({.id = static_cast<int32_t>(first++), .content = name, .special = true});
}

std::vector<std::string> extras(std::vector<std::string> names, int count) {
  for (int i = 0; i < count; ++i) names.push_back(str("<|extra_", i, "|>"));
  return names;
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::map<int64_t, std::string> said_tokens(const Json& config) {
  std::map<int64_t, std::string> out;
  const Json table = config.value("added_tokens_decoder", Json::object());
  if (!table.is_object()) return out;
  for (const auto& [key, value] : table.items()) {
    int64_t id = -1;
    const auto [last, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error == std::errc() && last == key.data() + key.size() && id >= 0 && id <= kMaxId && value.is_object())
      out[id] = JsonPart(value, str("added_tokens_decoder.", id)).text("content", "");
  }
  return out;
}

bool is_rank_file(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  const size_t blank = line.find(' ');
  if (blank == 0 || blank == std::string_view::npos || blank + 1 >= line.size()) return false;
  return std::all_of(line.begin() + static_cast<int64_t>(blank) + 1, line.end(),
                     [](char c) { return (c >= '0' && c <= '9') || c == '\r'; });
}

TokenizerSource read_tekken(std::string_view text, const std::string& name) {
  const Json json = parse_json(text, name, Fault::Model);
  require(json.is_object(), Fault::Model, name, ": an object is expected");
  const Json said = json.value("config", Json());
  const JsonPart config(said, name + ": config");
  const int64_t size = config.integer("default_vocab_size", 0);
  const int64_t specials = config.integer("default_num_special_tokens", 0);
  const Json words = json.value("vocab", Json());
  require(words.is_array() && specials > 0 && size > specials && size <= kMaxId && size - specials <= std::ssize(words),
          Fault::Model, name, ": default_vocab_size ", size, " and default_num_special_tokens ", specials,
          " do not fit its vocab of ", words.size(), " tokens");
  std::vector<RankedToken> tokens;
  for (int64_t i = 0; i < size - specials; ++i) {
    const JsonPart word(words[static_cast<size_t>(i)], str(name, ": vocab[", i, "]"));
    require(word.integer("rank", -1) == i, Fault::Model, name, ": vocab[", i, "] has another rank");
    try {
      tokens.push_back({from_base64(word.text("token_bytes", "")), static_cast<int32_t>(specials + i)});
    } catch (const Error&) {
      fail(Fault::Model, name, ": vocab[", i, "]: token_bytes is no base64");
    }
  }
  TokenizerSource out;
  add_model(out, tokens, name);
  out.stages = stages_of(config.text("pattern", ""), false);
  add_specials(out, 0, tekken_specials(json, specials, name));
  const auto begin = std::find_if(out.added.begin(), out.added.end(), [](const auto& t) { return t.content == "<s>"; });
  if (begin != out.added.end()) out.stages["post_processor"] = marks_before({{begin->content, begin->id}});
  out.usual = {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"pad_token", "<pad>"}, {"unk_token", "<unk>"}};
  return out;
}

TokenizerSource read_rank_file(std::string_view text, const std::string& file, const Json& config, bool sees) {
  const std::vector<RankedToken> tokens = ranked_tokens(text, file);
  int64_t first = 0;
  for (const RankedToken& token : tokens) first = std::max<int64_t>(first, token.rank + 1);
  TokenizerSource out;
  add_model(out, tokens, file);
  std::map<int64_t, std::string> said = said_tokens(config);
  if (file.ends_with("qwen.tiktoken")) {
    out.stages = stages_of(kQwen2Regex, true);
    std::vector<std::string> names = extras({"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, 205);
    const std::vector<std::string> seen = {"<ref>",   "</ref>", "<box>",  "</box>",  "<quad>",
                                           "</quad>", "<img>",  "</img>", "<imgpad>"};
    if (sees) names.insert(names.end(), seen.begin(), seen.end());
    add_specials(out, first, names);
    out.usual = {{"eos_token", "<|endoftext|>"}, {"pad_token", "<|endoftext|>"}};
  } else if (file.ends_with("hy.tiktoken")) {
    out.stages = stages_of(kQwen2Regex, true);
    add_specials(out, first, extras({"<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>"}, 205));
    out.usual = {{"bos_token", "<|startoftext|>"}, {"eos_token", "<|eos|>"}, {"pad_token", "<|pad|>"}};
  } else if (file.ends_with("tiktoken.model")) {
    out.stages = stages_of(kKimiRegex, false);
    for (int64_t id = first; id < first + 256; ++id)
      if (!said.count(id)) said[id] = str("<|reserved_token_", id, "|>");
  } else {
    require(
        !said.empty(), Fault::Model, file,
        " holds tokens and their ranks (tiktoken's form), and tokenizer_config.json does not say which are special");
    out.stages = stages_of(kLlama3Regex, false);
  }
  std::vector<std::pair<std::string, int64_t>> before;
  for (const auto& [id, name] : said) {
    if (!name.empty() && id >= first) add_specials(out, id, {name});
    if (name == "[gMASK]" || name == "<sop>") before.emplace_back(name, id);
  }
  if (before.size() == 2 &&
      JsonPart(config, "tokenizer_config.json").text("tokenizer_class", "").starts_with("ChatGLM"))
    out.stages["post_processor"] = marks_before(before);
  return out;
}

}  // namespace apus
