// SPDX-License-Identifier: Apache-2.0
#include "engine/answer/generation_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "models/spec/config_parts.h"

namespace apus {

namespace {

constexpr int64_t kLargest = 16 << 20;

Json read_object(const std::filesystem::path& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return Json::object();
  Json json = parse_json(read_file(path, kLargest), path.string(), Fault::Model);
  require(json.is_object(), Fault::Model, path.string(), " must hold an object");
  return json;
}

class Reader {
 public:
  Reader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  void operator()(const char* key, std::optional<double>& out, double least, double most) const {
    const Json* v = find(key);
    if (!v) return;
    require(v->is_number() && v->get<double>() >= least && v->get<double>() <= most, Fault::Model, where_, ": '", key,
            "' is ", v->dump(), ", it must be a number from ", least, " to ", most);
    out = v->get<double>();
  }
  void operator()(const char* key, std::optional<int64_t>& out, int64_t least, int64_t most) const {
    const Json* v = find(key);
    if (!v) return;
    const bool whole = v->is_number_integer() && (!v->is_number_unsigned() || v->get<uint64_t>() <= INT64_MAX);
    require(whole && v->get<int64_t>() >= least && v->get<int64_t>() <= most, Fault::Model, where_, ": '", key, "' is ",
            v->dump(), ", it must be a whole number from ", least, " to ", most);
    out = v->get<int64_t>();
  }
  void operator()(const char* key, std::optional<bool>& out) const {
    const Json* v = find(key);
    if (!v) return;
    require(v->is_boolean(), Fault::Model, where_, ": '", key, "' must be true or false");
    out = v->get<bool>();
  }
  std::vector<int32_t> ids(const char* key) const {
    std::vector<int32_t> out;
    const Json* v = find(key);
    if (!v) return out;
    const auto add = [&](const Json& id) {
      require(id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() <= INT32_MAX, Fault::Model, where_,
              ": '", key, "' must be a token id or a list of them");
      out.push_back(id.get<int32_t>());
    };
    if (v->is_array())
      std::for_each(v->begin(), v->end(), add);
    else
      add(*v);
    return out;
  }

 private:
  const Json* find(const char* key) const {
    const auto it = json_.find(key);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }
  const Json& json_;
  std::string where_;
};

std::vector<int32_t> config_eos(const std::filesystem::path& folder) {
  const Json config = read_object(folder / "config.json");
  const std::string where = (folder / "config.json").string();
  if (auto ids = Reader(config, where).ids("eos_token_id"); !ids.empty()) return ids;
  return Reader(text_settings(config), where).ids("eos_token_id");
}

std::vector<std::string> not_followed(const Json& json) {
  std::vector<std::string> found;
  for (const auto& [name, harmless] : kUnfollowedKeys) {
    const auto it = json.find(name);
    if (it == json.end() || it->is_null() || *it == Json::parse(harmless) || (it->is_structured() && it->empty()))
      continue;
    const std::string text = it->dump();
    found.push_back(str(name, " ", text.size() > 40 ? text.substr(0, 37) + "..." : text));
  }
  return found;
}

}  // namespace

GenerationConfig read_generation_config(const std::filesystem::path& folder) {
  const auto path = folder / "generation_config.json";
  const Json json = read_object(path);
  const Reader read(json, path.string());
  GenerationConfig out;
  SamplingWishes& w = out.wishes;
  read("do_sample", w.do_sample);
  each_sampling_field([&](const auto& field) {
    if (field.of_checkpoints) read(field.name, w.*field.wish, field.least, field.most);
  });
  if (w.top_p && *w.top_p == 0) w.top_p.reset();  // written by some for "off"
  w.never = read.ids("suppress_tokens"), w.never_first = read.ids("begin_suppress_tokens");
  out.eos = read.ids("eos_token_id");
  if (out.eos.empty()) out.eos = config_eos(folder);
  out.not_followed = not_followed(json);
  return out;
}

}  // namespace apus
