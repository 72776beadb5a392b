// SPDX-License-Identifier: Apache-2.0
// tokenizer.ggml.* of a folder's tokenizer.json: byte-level BPE as it is, SentencePiece's BPE with scores that give its
// merges back.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "checkpoint/gguf_settings.h"
#include "gguf/import.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/tokenizer_source.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

using Settings = std::vector<std::pair<std::string, GgufValue>>;

std::vector<std::pair<std::string, std::string>> merges_of(const Json& model, const std::string& where) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const Json& merge : model.value("merges", Json::array())) {
    if (merge.is_array() && merge.size() == 2) {
      out.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    require(merge.is_string(), Fault::Model, where, ": a merge is a text or a pair of texts");
    const auto text = merge.get<std::string>();
    const size_t blank = text.find(' ');
    require(blank != std::string::npos, Fault::Model, where, ": the merge '", text, "' is no pair");
    out.emplace_back(text.substr(0, blank), text.substr(blank + 1));
  }
  return out;
}

bool is_byte_level(const Json& tokenizer) {
  const Json decoder = tokenizer.value("decoder", Json());
  return decoder.is_object() && decoder.value("type", "") == "ByteLevel";
}

bool is_byte_token(const std::string& token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with(">");
}

int kind_of(const Tokenizer& tokenizer, int32_t id, bool pieces) {
  const std::string token = tokenizer.piece(id);
  if (pieces && tokenizer.unk() == id) return gguf_token::kUnknown;
  if (tokenizer.is_added(id)) {
    const bool control = tokenizer.is_special(id) || (token.starts_with("<|") && token.ends_with("|>"));
    return control ? gguf_token::kControl : gguf_token::kUserDefined;
  }
  return pieces && is_byte_token(token) ? gguf_token::kByte : gguf_token::kNormal;
}

void add_tokens(Settings& out, const Tokenizer& tokenizer, int64_t rows, bool pieces) {
  GgufValue::Strings tokens;
  GgufValue::Integers kinds;
  for (int64_t i = 0; i < rows; ++i) {
    const auto id = static_cast<int32_t>(i);
    const bool there = id < tokenizer.vocab_size() && tokenizer.has(id);
    tokens.push_back(there ? tokenizer.piece(id) : str("[PAD", i, "]"));
    kinds.push_back(there ? kind_of(tokenizer, id, pieces) : gguf_token::kUnused);
  }
  out.emplace_back("tokenizer.ggml.tokens", GgufValue::list(GgufKind::String, std::move(tokens)));
  out.emplace_back("tokenizer.ggml.token_type", GgufValue::list(GgufKind::I32, std::move(kinds)));
}

// The earlier a merge, the higher the score of what it makes.
void add_scores(Settings& out, const Json& model, const Tokenizer& tokenizer, int64_t rows, const std::string& where) {
  GgufValue::Numbers scores(static_cast<size_t>(rows), 0);
  std::vector<bool> made(static_cast<size_t>(rows));
  double score = 0;
  for (const auto& [left, right] : merges_of(model, where))
    if (const auto id = tokenizer.id(left + right); id && *id < rows && !made[static_cast<size_t>(*id)])
      made[static_cast<size_t>(*id)] = true, scores[static_cast<size_t>(*id)] = --score;
  for (int64_t i = 0; i < rows; ++i)  // single characters are never merged to
    if (!made[static_cast<size_t>(i)]) scores[static_cast<size_t>(i)] = score - 1;
  out.emplace_back("tokenizer.ggml.scores", GgufValue::list(GgufKind::F32, std::move(scores)));
}

void add_merges(Settings& out, const Json& tokenizer, const std::string& where) {
  const std::string cut = cut_name(tokenizer);
  require(
      !cut.empty(), Fault::Model, where,
      ": its pre_tokenizer cuts text in a way that GGUF files have no name for here; qwen2, llama-bpe, gpt-2, smollm, "
      "tekken, gpt-4o and glm4 are written");
  out.emplace_back("tokenizer.ggml.pre", GgufValue::text(cut));
  GgufValue::Strings merges;
  for (const auto& [left, right] : merges_of(tokenizer["model"], where)) merges.push_back(left + " " + right);
  out.emplace_back("tokenizer.ggml.merges", GgufValue::list(GgufKind::String, std::move(merges)));
}

// The ids that end an answer besides the tokenizer's own: of generation_config.json, else of config.json.
std::vector<int32_t> ends_of(const fs::path& folder) {
  std::vector<int32_t> out;
  for (const char* file : {"generation_config.json", "config.json"}) {
    if (!fs::exists(folder / file) || !out.empty()) continue;
    const Json ids = parse_json(read_file(folder / file, 16 << 20), (folder / file).string(), Fault::Model)
                         .value("eos_token_id", Json());
    for (const Json& id : ids.is_array() ? ids : Json::array({ids}))
      if (id.is_number_integer()) out.push_back(id.get<int32_t>());
  }
  return out;
}

void add_special(Settings& out, const Tokenizer& tokenizer, const fs::path& folder) {
  const std::vector<int32_t> ends = ends_of(folder);
  const auto add = [&](const char* name, std::optional<int32_t> id) {
    if (id) out.emplace_back(str("tokenizer.ggml.", name), GgufValue::u32(*id));
  };
  const std::optional<int32_t> eos = tokenizer.eos() ? tokenizer.eos()
                                     : ends.empty()  ? std::nullopt
                                                     : std::optional(ends[0]);
  add("eos_token_id", eos);
  const auto other = std::find_if(ends.begin(), ends.end(),
                                  [&](int32_t id) { return eos != id && tokenizer.has(id) && tokenizer.is_added(id); });
  if (other != ends.end()) add("eot_token_id", *other);
  add("bos_token_id", tokenizer.bos());
  add("padding_token_id", tokenizer.pad());
  add("unknown_token_id", tokenizer.unk());
  const std::vector<int32_t> framed = tokenizer.encode("a", true);
  const bool bos = tokenizer.bos() && !framed.empty() && framed.front() == *tokenizer.bos();
  const bool at_end = tokenizer.eos() && !framed.empty() && framed.back() == *tokenizer.eos();
  out.emplace_back("tokenizer.ggml.add_bos_token", GgufValue::flag(bos));
  if (at_end) out.emplace_back("tokenizer.ggml.add_eos_token", GgufValue::flag(true));
}

void add_templates(Settings& out, const fs::path& folder) {
  const auto chat = ChatTemplate::find(folder);
  if (!chat) return;
  const std::vector<std::string> names = chat->variants();
  GgufValue::Strings others;
  for (const std::string& name : names) {
    const bool usual = names.size() == 1 || name == "default";
    out.emplace_back(usual ? "tokenizer.chat_template" : "tokenizer.chat_template." + name,
                     GgufValue::text(chat->text(name)));
    if (!usual) others.push_back(name);
  }
  if (!others.empty())
    out.emplace_back("tokenizer.chat_templates", GgufValue::list(GgufKind::String, std::move(others)));
}

}  // namespace

Settings gguf_tokenizer(const fs::path& folder, int64_t rows) {
  const Json json = tokenizer_json(folder);
  const std::string path = folder.string();
  require(json.is_object(), Fault::Model, path,
          " has no tokenizer.json, nor SentencePiece's or tiktoken's file, of which a GGUF file's tokenizer is made");
  const Json& model = json.contains("model") ? json["model"] : json;
  const bool bytes = is_byte_level(json), pieces = !bytes && model.value("byte_fallback", Json()) == true;
  require(model.value("type", "BPE") == "BPE" && (bytes || pieces), Fault::Model, path, ": tokenizers of type ",
          model.value("type", "?"), " are not written as GGUF; BPE over bytes, or with byte_fallback, is");
  const auto tokenizer = Tokenizer::load(folder);
  require(tokenizer->vocab_size() <= rows, Fault::Model, path, " has ", tokenizer->vocab_size(), " tokens for the ",
          rows, " rows of the model's table");
  Settings out;
  out.emplace_back("tokenizer.ggml.model", GgufValue::text(bytes ? "gpt2" : "llama"));
  add_tokens(out, *tokenizer, rows, pieces);
  if (bytes) {
    add_merges(out, json, path);
  } else {
    add_scores(out, model, *tokenizer, rows, path);
    out.emplace_back("tokenizer.ggml.add_space_prefix",
                     GgufValue::flag(json_text(json.value("normalizer", Json())).find("Prepend") != std::string::npos));
  }
  add_special(out, *tokenizer, folder);
  add_templates(out, folder);
  return out;
}

}  // namespace apus
