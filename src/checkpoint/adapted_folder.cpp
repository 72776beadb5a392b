// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/adapted_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/half.h"
#include "base/log.h"
#include "checkpoint/file_names.h"
#include "checkpoint/user_cache.h"
#include "models/spec/config_parts.h"
#include "models/spec/family.h"
#include "tensor/safetensors_header.h"
#include "tensor/weight_files.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kRowsTogether = 128;  // a grown vocabulary is a multiple of this, which matrix products like
constexpr const char* kNewRows = "model-new-tokens.safetensors";

// Numbers of weights in the three formats that checkpoints have.
float number_at(const std::byte* at, DiskType type) {
  if (type == DiskType::F32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, at, sizeof half);
  return type == DiskType::BF16 ? bf16_to_float(half) : f16_to_float(half);
}

void put_number(std::string& out, float value, DiskType type) {
  if (type == DiskType::F32) return void(out.append(reinterpret_cast<const char*>(&value), sizeof value));
  const uint16_t half = type == DiskType::BF16 ? float_to_bf16(value) : float_to_f16(value);
  out.append(reinterpret_cast<const char*>(&half), sizeof half);
}

// A matrix of the checkpoint, one row a token, and where it lies.
struct VocabularyRows {
  std::string name;
  TensorEntry entry;
  std::shared_ptr<MappedFile> file;
  int64_t width() const { return entry.shape[1]; }
};

// New tokens begin as the mean of all others: the model neither prefers nor shuns them.
std::string mean_row(const VocabularyRows& rows) {
  const DiskType type = rows.entry.type;
  const int64_t count = rows.entry.shape[0], width = rows.width(), size = disk_size(type);
  std::vector<double> sums(static_cast<size_t>(width));
  const std::byte* at = rows.file->data() + rows.entry.begin;
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < width; ++c, at += size) sums[static_cast<size_t>(c)] += number_at(at, type);
  std::string out;
  for (const double sum : sums) put_number(out, static_cast<float>(sum / static_cast<double>(count)), type);
  return out;
}

void write_grown(const fs::path& path, const std::vector<VocabularyRows>& matrices, int64_t vocabulary) {
  Json header = Json::object();
  header["__metadata__"] = {{"format", "pt"}};
  int64_t offset = 0;
  for (const VocabularyRows& m : matrices) {
    const int64_t bytes = vocabulary * m.width() * disk_size(m.entry.type);
    header[m.name] = {{"dtype", disk_name(m.entry.type)},
                      {"shape", {vocabulary, m.width()}},
                      {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  AtomicFile file(path);
  const auto length = static_cast<uint64_t>(text.size());
  file.write(&length, sizeof length);
  file.write(text);
  for (const VocabularyRows& m : matrices) {
    file.write(m.file->data() + m.entry.begin, m.entry.end - m.entry.begin);
    const std::string mean = mean_row(m);
    for (int64_t r = m.entry.shape[0]; r < vocabulary; ++r) file.write(mean);
  }
  file.commit();
}

// An index of the old files that takes the matrices of the vocabulary from a new one.
void grow_weights(const fs::path& from, const fs::path& to, int64_t old_vocabulary, int64_t vocabulary) {
  std::vector<VocabularyRows> matrices;
  Json map = Json::object();
  for (const WeightFile& file : weight_files(from, kModelWeights)) {
    const auto mapped = std::make_shared<MappedFile>(file.path);
    const auto header = parse_weights_header(mapped->data(), mapped->size(), file.path.string());
    for (const auto& [name, entry] : header.tensors) {
      if (!file.promised.empty() && !std::count(file.promised.begin(), file.promised.end(), name)) continue;
      const bool of_vocabulary = name.ends_with("embed_tokens.weight") || name == "lm_head.weight";
      const bool grows = of_vocabulary && entry.shape.size() == 2 && entry.shape[0] == old_vocabulary;
      require(!grows || entry.type == DiskType::F32 || entry.type == DiskType::BF16 || entry.type == DiskType::F16,
              Fault::Usage, "--new_special_tokens: ", name, " is ", disk_name(entry.type),
              ", which cannot be made larger; take a checkpoint in bfloat16, float16 or float32");
      if (grows) matrices.push_back({name, entry, mapped});
      map[name] = grows ? kNewRows : file.path.filename().string();
    }
  }
  require(!matrices.empty(), Fault::Model, from.string(), ": no embedding of ", old_vocabulary,
          " tokens was found to grow");
  write_grown(to / kNewRows, matrices, vocabulary);
  fs::remove(to / index_file(kModelWeights));
  const fs::path single = to / single_file(kModelWeights);  // else it would be taken instead of the index
  if (fs::exists(single)) {
    const std::string other = "model-base.safetensors";
    fs::rename(single, to / other);
    for (auto& [name, file] : map.items())
      if (file == single.filename().string()) file = other;
  }
  write_file_atomic(to / index_file(kModelWeights), Json{{"metadata", Json::object()}, {"weight_map", map}}.dump(1));
}

Json json_file(const fs::path& path) {
  return fs::exists(path) ? parse_json(read_file(path, 256 << 20), path.string(), Fault::Model) : Json::object();
}

void link_all(const fs::path& from, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(from))
    if (std::error_code code; entry.is_regular_file(code))
      fs::create_symlink(fs::canonical(entry.path()), to / entry.path().filename());
}

void replace_json(const fs::path& path, const Json& value) {
  fs::remove(path);  // the link, not what it points to
  write_file_atomic(path, value.dump(2) + "\n");
}

// What the folder depends on: the files that change, and how.
std::string key_of(const fs::path& folder, const Adaptation& wanted) {
  std::string key = fs::canonical(folder).string() + "\n" + wanted.rope_scaling + "\n" +
                    std::to_string(wanted.max_model_len.value_or(0));
  for (const std::string& token : wanted.new_tokens) key += "\n" + token;
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (std::error_code code; entry.is_regular_file(code))
      files[entry.path().filename()] =
          str(entry.file_size(code), " ", entry.last_write_time(code).time_since_epoch().count());
  for (const auto& [name, state] : files) key += "\n" + name + " " + state;
  return hex_digest(key, 8);
}

}  // namespace

Json with_rope_scaling(Json config, const std::string& scaling, std::optional<int64_t> max_model_len) {
  Json wanted = scaling.find('{') == std::string::npos ? Json{{"rope_type", scaling}}
                                                       : parse_json(scaling, "--rope_scaling", Fault::Usage);
  require(wanted.is_object(), Fault::Usage, "--rope_scaling: a name or an object is needed");
  const std::string type = wanted.value("rope_type", wanted.value("type", std::string("default")));
  require(type != "default" && !type.empty(), Fault::Usage,
          "--rope_scaling: the object names no \"rope_type\"; possible: linear, dynamic, yarn, llama3");
  Json& text = text_settings(config);
  const char* const key = text.contains("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const Json before = text.contains(key) && text[key].is_object() ? text[key] : Json::object();
  const char* const original_key = "original_max_position_embeddings";
  const int64_t positions = text.value("max_position_embeddings", int64_t{0});
  const int64_t original = wanted.contains(original_key)   ? wanted[original_key].get<int64_t>()
                           : before.contains(original_key) ? before[original_key].get<int64_t>()
                                                           : positions;
  require(original > 0, Fault::Model, "config.json names no max_position_embeddings that --rope_scaling could stretch");
  if (!wanted.contains("factor")) {
    require(max_model_len.has_value(), Fault::Usage, "--rope_scaling ", scaling,
            " needs to know how far: give --max_model_len, or '{\"rope_type\": \"", type, "\", \"factor\": 4}'");
    wanted["factor"] =
        std::max<double>(1, std::ceil(static_cast<double>(*max_model_len) / static_cast<double>(original)));
  }
  for (const char* kept : {"rope_theta", "partial_rotary_factor"})
    if (before.contains(kept) && !wanted.contains(kept)) wanted[kept] = before[kept];
  if (type != "dynamic") {  // which starts from the context in config.json
    wanted[original_key] = original;
    text["max_position_embeddings"] =
        std::max(positions, static_cast<int64_t>(static_cast<double>(original) * wanted["factor"].get<double>()));
  }
  text[key] = std::move(wanted);
  return config;
}

int64_t add_special_tokens(Json& tokenizer, Json& config, const std::vector<std::string>& tokens) {
  std::map<std::string, int64_t> known;
  if (tokenizer.contains("model") && tokenizer["model"].contains("vocab")) {
    const Json& vocab = tokenizer["model"]["vocab"];
    if (vocab.is_object())
      for (const auto& [token, id] : vocab.items()) known[token] = id.get<int64_t>();
    else  // unigram: a list of pairs
      for (const Json& pair : vocab) known.emplace(pair[0].get<std::string>(), static_cast<int64_t>(known.size()));
  }
  if (!tokenizer.contains("added_tokens")) tokenizer["added_tokens"] = Json::array();
  std::set<std::string> added;
  for (const Json& token : tokenizer["added_tokens"]) {
    added.insert(token["content"].get<std::string>());
    known[token["content"].get<std::string>()] = token["id"].get<int64_t>();
  }
  int64_t next = 0;
  for (const auto& [token, id] : known) next = std::max(next, id + 1);
  for (const std::string& token : tokens) {
    if (added.count(token)) continue;
    const auto found = known.find(token);
    const int64_t id = found == known.end() ? next++ : found->second;
    const Json entry = {{"content", token}, {"single_word", false}, {"lstrip", false},
                        {"rstrip", false},  {"normalized", false},  {"special", true}};
    Json with_id = entry;
    with_id["id"] = id;
    tokenizer["added_tokens"].push_back(std::move(with_id));
    if (config.contains("added_tokens_decoder")) config["added_tokens_decoder"][std::to_string(id)] = entry;
    if (!config.contains("additional_special_tokens") || !config["additional_special_tokens"].is_array())
      config["additional_special_tokens"] = Json::array();
    config["additional_special_tokens"].push_back(token);
    added.insert(token), known[token] = id;
  }
  return next;
}

namespace {
bool has_no_more_words(const Json& config) {
  const std::string type = config.is_object() ? config.value("model_type", "") : "";
  return !is_known_model(type) || describe_model(config, natural_head(config)).more_words == 0;
}
}  // namespace

fs::path adapted_folder(const fs::path& folder, const Adaptation& wanted) {
  const Json config = json_file(folder / kModelConfigFile), tokenizer = json_file(folder / "tokenizer.json"),
             tokenizer_config = json_file(folder / "tokenizer_config.json");
  Json new_config =
      wanted.rope_scaling.empty() ? config : with_rope_scaling(config, wanted.rope_scaling, wanted.max_model_len);
  Json new_tokenizer = tokenizer, new_tokenizer_config = tokenizer_config;
  const int64_t old_vocabulary = text_settings(new_config).value("vocab_size", int64_t{0});
  int64_t vocabulary = old_vocabulary;
  if (!wanted.new_tokens.empty()) {
    require(tokenizer.contains("model"), Fault::Usage, "--new_special_tokens: ", folder.string(),
            " has no tokenizer.json to add them to");
    const int64_t tokens = add_special_tokens(new_tokenizer, new_tokenizer_config, wanted.new_tokens);
    require(tokens <= old_vocabulary || has_no_more_words(config), Fault::Usage,
            "--new_special_tokens: the words that ", folder.string(),
            " has behind its vocabulary, for pictures, would move: give tokens that it knows");
    if (tokens > old_vocabulary) vocabulary = (tokens + kRowsTogether - 1) / kRowsTogether * kRowsTogether;
    text_settings(new_config)["vocab_size"] = vocabulary;
  }
  if (new_config == config && new_tokenizer == tokenizer) return folder;
  const fs::path name = fs::absolute(folder / "").lexically_normal().parent_path().filename();
  const fs::path target = user_cache("adapted") / (name.string() + "-" + key_of(folder, wanted));
  if (fs::exists(target / kModelConfigFile)) return target;
  const fs::path partial = target.string() + str(".", ::getpid(), ".tmp");
  make_writable_dir(partial);
  link_all(folder, partial);
  replace_json(partial / kModelConfigFile, new_config);
  if (new_tokenizer != tokenizer) {
    replace_json(partial / "tokenizer.json", new_tokenizer);
    replace_json(partial / "tokenizer_config.json", new_tokenizer_config);
  }
  if (vocabulary != old_vocabulary) grow_weights(folder, partial, old_vocabulary, vocabulary);
  std::error_code code;
  fs::rename(partial, target, code);  // another process may have been first
  if (code) fs::remove_all(partial);
  require(fs::exists(target / kModelConfigFile), Fault::Io, "cannot make ", target.string(), ": ", code.message());
  if (vocabulary != old_vocabulary)
    log_info("the vocabulary grows from ", old_vocabulary, " to ", vocabulary, " rows; ", target.string(),
             " holds them");
  return target;
}

std::vector<std::string> listed_tokens(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (const std::string& word : words) {
    if (!word.ends_with(".txt")) {
      out.push_back(word);
      continue;
    }
    std::string text = read_file(word, 4 << 20), line;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      line = text.substr(begin, end - begin);
      while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
      if (!line.empty()) out.push_back(line);
      begin = end + 1;
    }
  }
  return out;
}

}  // namespace apus
