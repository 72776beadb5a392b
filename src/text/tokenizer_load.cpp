// SPDX-License-Identifier: Apache-2.0
// From tokenizer.json, or vocab.json and merges.txt, or vocab.txt, or SentencePiece's and tiktoken's files, to the
// parts of a Tokenizer. "truncation" and "padding" of tokenizer.json, for batches of fixed shape, are not applied.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_parts.h"
#include "text/tokenizer_source.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kMaxFile = int64_t{256} << 20;

// ---- the post-processor: what it puts before and after one text

std::vector<int32_t> template_ids(const JsonPart& piece, const JsonPart& processor) {
  const std::string name = piece.text("id");
  const JsonPart known = processor.part("special_tokens");
  if (!known.has(name.c_str())) piece.error("id", str("'", name, "' is not among ", known.where()));
  const JsonPart token = known.part(name.c_str());
  if (!token.has("ids") || !token.json()["ids"].is_array()) token.error("ids", "a list of ids is needed");
  std::vector<int32_t> ids;
  for (const auto& id : token.json()["ids"]) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > kMaxId) token.error("ids", "not an id");
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

// The template of one text (A), or of two (A before B).
Tokenizer::Marks read_template(const JsonPart& processor, const char* key) {
  Tokenizer::Marks marks;
  std::vector<std::vector<int32_t>*> sides = {&marks.after, &marks.before};
  if (std::string(key) == "pair") sides = {&marks.after, &marks.between, &marks.before};
  for (const JsonPart& piece : processor.list(key)) {
    if (piece.has("Sequence")) {
      const JsonPart text = piece.part("Sequence");
      if (sides.size() == 1) piece.error("Sequence", "a text may stand only once in the template");
      sides.pop_back();
      const std::string name = text.text("id", "A");
      if (name == (sides.size() == 1 && std::string(key) == "pair" ? "A" : "B"))
        piece.error("Sequence", str("the text ", name, " may not stand here"));
      if (name == "B") marks.apart = text.integer("type_id", 0) > 0;
    } else {
      const auto ids = template_ids(piece.part("SpecialToken"), processor);
      sides.back()->insert(sides.back()->end(), ids.begin(), ids.end());
    }
  }
  if (sides.size() > 1) processor.error(key, "a text (Sequence) is missing from the template");
  return marks;
}

void read_templates(const JsonPart& processor, TokenizerParts& parts) {
  const Tokenizer::Marks own = read_template(processor, "single");
  parts.marks.before.insert(parts.marks.before.begin(), own.before.begin(), own.before.end());
  parts.marks.after.insert(parts.marks.after.end(), own.after.begin(), own.after.end());
  if (processor.has("pair") && !processor.json()["pair"].empty()) parts.of_pair = read_template(processor, "pair");
}

void read_post_processor(const JsonPart& part, TokenizerParts& parts) {
  const std::string type = part.type();
  const auto named = [&](const char* key) {  // ["</s>", 2]
    const Json& pair = part.part(key).json();
    if (!pair.is_array() || pair.size() != 2 || !pair[1].is_number_integer())
      part.error(key, "a pair [token, id] is needed");
    return pair[1].get<int32_t>();
  };
  if (type == "TemplateProcessing") {
    read_templates(part, parts);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    const int32_t cls = named("cls"), sep = named("sep");
    parts.marks.before.insert(parts.marks.before.begin(), cls);
    parts.marks.after.push_back(sep);
    const bool bert = type == "BertProcessing";
    parts.of_pair = {
        .before = {cls}, .between = std::vector<int32_t>(bert ? 1 : 2, sep), .after = {sep}, .apart = bert};
  } else if (type == "Sequence") {
    for (const JsonPart& step : part.list("processors")) read_post_processor(step, parts);
  } else if (type != "ByteLevel") {  // that one only trims offsets
    part.error("type", str("the post-processor '", type,
                           "' is not known; known are TemplateProcessing, ByteLevel, BertProcessing, "
                           "RobertaProcessing and Sequence"));
  }
}

// ---- tokenizer.json

std::unique_ptr<const TokenModel> make_model(const ModelSource& source, bool bytes) {
  const std::string type = model_type(source);
  if (type == "BPE") return make_bpe(source, bytes);
  if (type == "Unigram") return make_unigram(source);
  if (type == "WordPiece") return make_word_piece(source);
  if (type == "WordLevel") return make_word_level(source);
  source.error("type", str("the model '", type, "' is not known; known are BPE, Unigram, WordPiece and WordLevel"));
}

struct Members {
  std::string name;
  std::map<std::string, std::string_view> raw;

  Members(std::string_view text, const std::string& file) : name(file) {
    JsonCursor cursor(text, file);
    cursor.object([&](std::string_view key) {
      const std::string owned(key);
      raw[owned] = cursor.skip();
    });
    cursor.end();
  }
  // A member as a tree; null if absent.
  Json tree(const std::string& key) const {
    const auto it = raw.find(key);
    return it == raw.end() ? Json() : parse_json(it->second, name + ": " + key);
  }
  std::string where(const std::string& key) const { return name + ": " + key; }
};

// `config` may say by add_prefix_space what counts, for a pre-tokenizer that is ByteLevel and nothing else.
void assemble(TokenizerParts& parts, const Members& members, const ModelSource& model, const Json* config = nullptr) {
  Json cutter = members.tree("pre_tokenizer");
  if (config && cutter.is_object() && cutter.value("type", Json()) == "ByteLevel") {
    const auto prefix = config->find("add_prefix_space");
    if (prefix != config->end() && prefix->is_boolean()) cutter["add_prefix_space"] = *prefix;
  }
  const Json normalizer = members.tree("normalizer"), post = members.tree("post_processor"),
             decoder = members.tree("decoder"), added = members.tree("added_tokens");
  if (!normalizer.is_null()) parts.normalizer = make_normalizer({normalizer, members.where("normalizer")});
  const JsonPart cut_part(cutter, members.where("pre_tokenizer"));
  parts.pre_tokenizers = make_pre_tokenizers(cutter.is_null() ? nullptr : &cut_part, model_type(model) == "BPE");
  parts.model = make_model(model, parts.pre_tokenizers.bytes);
  if (!post.is_null()) read_post_processor({post, members.where("post_processor")}, parts);
  if (!decoder.is_null()) {
    const JsonPart part(decoder, members.where("decoder"));
    parts.decoder = make_decoder(part);
    parts.byte_decoder = parts.model->works_on_bytes() && part.type() == "ByteLevel";
  }
  if (added.is_null()) return;
  require(added.is_array(), Fault::Model, members.where("added_tokens"), ": a list is needed");
  int32_t next = next_id(parts);
  for (size_t i = 0; i < added.size(); ++i) {
    const JsonPart part(added[i], members.where(str("added_tokens[", i, "]")));
    add_token(parts, added_token(part, part.integer("id", -1), false), part.where(), &next);
  }
}

// Builds the finders and the tables by id once everything is read.
void finish(TokenizerParts& parts) {
  // Tokens that the configuration names as special are so, whatever tokenizer.json says of them.
  std::vector<std::string> named = parts.additional_special_tokens;
  for (const auto& [name, token] : parts.special_tokens) named.push_back(token);
  for (const std::string& name : named)
    if (const auto id = parts.model->id(name)) add_token(parts, {.id = *id, .content = name, .special = true}, name);
  parts.size = parts.model->size();
  for (const AddedToken& token : parts.added) parts.size = std::max(parts.size, token.id + 1);
  parts.added_at.assign(static_cast<size_t>(parts.size), -1);
  std::vector<const AddedToken*> raw, normalized;
  std::vector<std::string> raw_patterns, normalized_patterns;
  for (size_t i = 0; i < parts.added.size(); ++i) {
    AddedToken& token = parts.added[i];
    parts.added_at[static_cast<size_t>(token.id)] = static_cast<int32_t>(i);
    TokenText pattern = TokenText::of(token.content, 0, false);
    if (parts.normalizer && token.normalized) parts.normalizer->apply(pattern);
    token.shown = pattern.text;
    if (!byte_alphabet::append_bytes(token.bytes, token.shown)) token.bytes = token.shown;
    (token.normalized ? normalized : raw).push_back(&token);
    (token.normalized ? normalized_patterns : raw_patterns).push_back(token.shown);
  }
  parts.raw_finder.build(raw, raw_patterns);
  parts.normalized_finder.build(normalized, normalized_patterns);
}

struct ConfigFile {
  std::string name;
  Json json;
  ConfigFile(std::string file, std::string_view text)
      : name(std::move(file)), json(text.empty() ? Json::object() : parse_json(text, name)) {}
  JsonPart part() const { return {json, name}; }
};

void complete(TokenizerParts& parts, const ConfigFile& config, const ConfigFile& map) {
  read_config(parts, config.part(), map.part());
  finish(parts);
}

void check_text(std::string_view& text, const std::string& name) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const size_t good = unicode::valid_prefix(text);
  require(good == text.size(), Fault::Model, name, ": not UTF-8 at byte ", good);
}

// ---- vocab.json and merges.txt

// The lines of merges.txt as a JSON list.
std::string merges_json(std::string_view lines) {
  std::string out = "[";
  for (size_t begin = 0; begin < lines.size();) {
    size_t end = std::min(lines.find('\n', begin), lines.size());
    std::string_view line = lines.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (out.size() == 1 && line.starts_with("#version"))) continue;
    if (out.size() > 1) out += ',';
    out += json_string(line);
  }
  return out + "]";
}

std::string optional_file(const fs::path& path) {
  return fs::is_regular_file(path) ? read_file(path, kMaxFile) : std::string();
}

// The files do not say how text is cut: GPT-2's way, or Qwen2's where the configuration names that family.
std::string implied_stages(const std::string& tokenizer_class, const std::string& model_type) {
  const auto is_qwen = [](const std::string& name, const char* prefix) { return name.rfind(prefix, 0) == 0; };
  const bool qwen = tokenizer_class.empty() ? is_qwen(model_type, "qwen") : is_qwen(tokenizer_class, "Qwen");
  const std::string bytes = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":)";
  std::string split(json_string(kQwen2Regex));
  return qwen
             ? R"({"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":)" +
                   split + R"(},"behavior":"Isolated"},)" + bytes + R"(false}]},"decoder":{"type":"ByteLevel"}})"
             : R"({"pre_tokenizer":)" + bytes + R"(true},"decoder":{"type":"ByteLevel"}})";
}

std::unique_ptr<TokenizerParts> read_vocab_and_merges(const fs::path& dir, const ConfigFile& config) {
  const std::string vocab = read_file(dir / "vocab.json", kMaxFile),
                    merges = merges_json(read_file(dir / "merges.txt", kMaxFile));
  const std::string name = (dir / "vocab.json").string() + " and merges.txt";
  std::string_view vocab_view = vocab, merges_view = merges;
  check_text(vocab_view, (dir / "vocab.json").string());
  check_text(merges_view, (dir / "merges.txt").string());
  const auto value_of = [](const std::string& text, const fs::path& path, const char* key) {
    if (text.empty()) return std::string();
    const Json tree = parse_json(text, path.string());
    return JsonPart(tree, path.string()).text(key, "");
  };
  const std::string stages =
      implied_stages(config.part().text("tokenizer_class", ""),
                     value_of(optional_file(dir / "config.json"), dir / "config.json", "model_type"));
  auto parts = std::make_unique<TokenizerParts>();
  assemble(*parts, Members(stages, name),
           ModelSource(name, {{"type", "\"BPE\""}, {"vocab", vocab_view}, {"merges", merges_view}}));
  if (const std::string text = optional_file(dir / "added_tokens.json"); !text.empty()) {
    const std::string where = (dir / "added_tokens.json").string();
    const Json tree = parse_json(text, where);
    require(tree.is_object(), Fault::Model, where, ": an object of token to id is needed");
    for (const auto& [token, id] : tree.items()) {
      require(id.is_number_integer(), Fault::Model, where, ": ", token, ": an id is needed");
      add_token(*parts, {.id = id.get<int32_t>(), .content = token, .special = true}, where);
    }
  }
  return parts;
}

// ---- vocab.txt: BERT's, a piece of a word in each line

Json vocab_of_lines(std::string_view lines) {
  Json vocab = Json::object();
  int32_t id = 0;
  for (size_t begin = 0; begin < lines.size(); ++id) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    std::string_view line = lines.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    vocab[std::string(line)] = id;
  }
  return vocab;
}

// The rest as BertTokenizer has it: [CLS] text [SEP], or [CLS] text [SEP] text [SEP].
std::unique_ptr<TokenizerParts> read_vocab_of_lines(const fs::path& file, const ConfigFile& config) {
  const std::string text = read_file(file, kMaxFile), name = file.string();
  std::string_view view = text;
  check_text(view, name);
  const Json vocab = vocab_of_lines(view);
  const JsonPart said = config.part();
  const std::string unknown = said.text("unk_token", "[UNK]"), cls = said.text("cls_token", "[CLS]"),
                    sep = said.text("sep_token", "[SEP]");
  for (const std::string& token : {unknown, cls, sep})
    require(vocab.contains(token), Fault::Model, name, ": ", token, " is missing; it is no vocabulary of BERT's");
  Json added = Json::array();
  for (const std::string& token :
       {said.text("pad_token", "[PAD]"), unknown, cls, sep, said.text("mask_token", "[MASK]")})
    if (vocab.contains(token)) added.push_back({{"id", vocab[token]}, {"content", token}, {"special", true}});
  const auto special = [&](const std::string& token, int type) {
    return Json{{"SpecialToken", {{"id", token}, {"type_id", type}}}};
  };
  const Json first = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
             second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  const auto marks = [&](const std::string& token) {
    return Json{{"id", token}, {"ids", {vocab[token]}}, {"tokens", {token}}};
  };
  Json normalizer = {{"type", "BertNormalizer"},
                     {"clean_text", true},
                     {"handle_chinese_chars", said.flag("tokenize_chinese_chars", true)},
                     {"strip_accents", nullptr},
                     {"lowercase", said.flag("do_lower_case", true)}};
  if (const auto strips = config.json.find("strip_accents"); strips != config.json.end())
    normalizer["strip_accents"] = *strips;
  const Json stages = {{"added_tokens", added},
                       {"normalizer", normalizer},
                       {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                       {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
                       {"post_processor",
                        {{"type", "TemplateProcessing"},
                         {"single", {special(cls, 0), first, special(sep, 0)}},
                         {"pair", {special(cls, 0), first, special(sep, 0), second, special(sep, 1)}},
                         {"special_tokens", {{cls, marks(cls)}, {sep, marks(sep)}}}}}};
  const std::string stage_text = stages.dump(), vocab_text = vocab.dump(), unknown_text = Json(unknown).dump();
  auto parts = std::make_unique<TokenizerParts>();
  assemble(*parts, Members(stage_text, name),
           ModelSource(name, {{"type", "\"WordPiece\""},
                              {"unk_token", unknown_text},
                              {"continuing_subword_prefix", "\"##\""},
                              {"max_input_chars_per_word", "100"},
                              {"vocab", vocab_text}}));
  return parts;
}

// ---- SentencePiece's and tiktoken's files

TokenizerSource source_of(std::string_view bytes, const std::string& name, const Json& config, bool sees) {
  if (name.ends_with(kTekkenFile)) return read_tekken(bytes, name);
  return is_rank_file(bytes) ? read_rank_file(bytes, name, config, sees) : read_sentence_piece(bytes, name, config);
}

// What the file implies of special tokens is put into `config`.
std::unique_ptr<TokenizerParts> parts_of(const TokenizerSource& source, const std::string& name, ConfigFile& config) {
  for (const auto& [key, token] : source.usual)
    if (!config.json.contains(key)) config.json[key] = token;
  std::vector<std::pair<std::string, std::string_view>> members;
  for (const auto& [key, text] : source.model) members.emplace_back(key, text);
  auto parts = std::make_unique<TokenizerParts>();
  const std::string stages = source.stages.dump();
  assemble(*parts, Members(stages, name), ModelSource(name, std::move(members)));
  for (const AddedToken& token : source.added) add_token(*parts, token, name);
  return parts;
}

// And the file's name; "": the folder has none of these.
std::pair<TokenizerSource, std::string> read_other_file(const fs::path& dir, const Json& config) {
  for (const std::string file : kTokenizerFiles) {
    const fs::path path = dir / file;
    const bool usual = file.ends_with(".txt") || (file.ends_with(".json") && file != kTekkenFile);
    if (!fs::is_regular_file(path) || usual) continue;
    const std::string bytes = read_file(path, kMaxFile), model = optional_file(dir / "config.json");
    const Json said = model.empty() ? Json::object() : parse_json(model, (dir / "config.json").string());
    const JsonPart part(said, "config.json");
    const bool sees = part.has("visual") || part.text("model_type", "") == "GOT";
    return {source_of(bytes, path.string(), config, sees), path.string()};
  }
  return {};
}

}  // namespace

std::unique_ptr<TokenizerParts> read_tokenizer_file(std::string_view bytes, const std::string& name,
                                                    std::string_view config) {
  check_text(config, "tokenizer_config.json");
  ConfigFile config_file("tokenizer_config.json", config);
  auto parts = parts_of(source_of(bytes, name, config_file.json, false), name, config_file);
  complete(*parts, config_file, {"special_tokens_map.json", ""});
  return parts;
}

Json tokenizer_json(const fs::path& folder) {
  const fs::path usual = folder / "tokenizer.json";
  if (fs::is_regular_file(usual)) return parse_json(read_file(usual, kMaxFile), usual.string(), Fault::Model);
  if (fs::is_regular_file(folder / "vocab.txt") || fs::is_regular_file(folder / "vocab.json")) return {};
  const std::string beside = optional_file(folder / "tokenizer_config.json");
  const ConfigFile config((folder / "tokenizer_config.json").string(), beside);
  const auto [source, name] = read_other_file(folder, config.json);
  if (name.empty()) return {};
  Json out = {{"version", "1.0"}, {"added_tokens", Json::array()}};
  out.update(source.stages);
  for (const AddedToken& token : source.added)
    out["added_tokens"].push_back({{"id", token.id}, {"content", token.content}, {"special", token.special}});
  for (const auto& [key, text] : source.model)
    if (key != "vocab") out["model"][key] = parse_json(text, name);
  return out;
}

bool has_tokenizer(const fs::path& folder) {
  return std::any_of(std::begin(kTokenizerFiles), std::end(kTokenizerFiles),
                     [&](const char* file) { return fs::is_regular_file(folder / file); });
}

std::unique_ptr<TokenizerParts> read_tokenizer(std::string_view tokenizer, std::string_view config,
                                               const std::string& name) {
  check_text(tokenizer, name);
  check_text(config, "tokenizer_config.json");
  const Members members(tokenizer, name);
  const auto model = members.raw.find("model");
  require(model != members.raw.end(), Fault::Model, name,
          ": \"model\" is missing; this is not a tokenizer.json of the tokenizers library");
  auto parts = std::make_unique<TokenizerParts>();
  const ConfigFile config_file("tokenizer_config.json", config);
  assemble(*parts, members, ModelSource(model->second, name), &config_file.json);
  complete(*parts, config_file, {"special_tokens_map.json", ""});
  return parts;
}

std::unique_ptr<TokenizerParts> read_tokenizer(const fs::path& path) {
  const bool folder = fs::is_directory(path);
  const fs::path dir = folder ? path : path.parent_path(), file = folder ? dir / "tokenizer.json" : path;
  require(fs::exists(path), Fault::Io, "the tokenizer ", path.string(), " does not exist");
  const std::string config_text = optional_file(dir / "tokenizer_config.json"),
                    map_text = optional_file(dir / "special_tokens_map.json");
  std::string_view config_view = config_text, map_view = map_text;
  check_text(config_view, (dir / "tokenizer_config.json").string());
  check_text(map_view, (dir / "special_tokens_map.json").string());
  ConfigFile config((dir / "tokenizer_config.json").string(), config_view);
  const ConfigFile map((dir / "special_tokens_map.json").string(), map_view);
  std::unique_ptr<TokenizerParts> parts;
  if (fs::is_regular_file(file)) {
    const std::string text = read_file(file, kMaxFile);
    std::string_view view = text;
    check_text(view, file.string());
    const Members members(view, file.string());
    require(members.raw.count("model"), Fault::Model, file.string(),
            ": \"model\" is missing; this is not a tokenizer.json");
    parts = std::make_unique<TokenizerParts>();
    assemble(*parts, members, ModelSource(members.raw.at("model"), file.string()), &config.json);
  } else if (fs::is_regular_file(dir / "vocab.txt")) {
    parts = read_vocab_of_lines(dir / "vocab.txt", config);
  } else if (fs::is_regular_file(dir / "vocab.json") && fs::is_regular_file(dir / "merges.txt")) {
    parts = read_vocab_and_merges(dir, config);
  } else {
    const auto [source, name] = read_other_file(dir, config.json);
    require(
        !name.empty(), Fault::Model, path.string(),
        " has no tokenizer: tokenizer.json is needed, or vocab.json and merges.txt, BERT's vocab.txt, SentencePiece's "
        "tokenizer.model, tiktoken's file (qwen.tiktoken, hy.tiktoken, tiktoken.model, tokenizer.model), or Mistral's "
        "tekken.json");
    parts = parts_of(source, name, config);
  }
  complete(*parts, config, map);
  return parts;
}

}  // namespace apus
