// SPDX-License-Identifier: Apache-2.0
#include "engine/answer/generation_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"

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

  void operator()(const char* key, std::optional<double>& out, double low, double high) const {
    const Json* v = find(key);
    if (!v) return;
    require(v->is_number() && v->get<double>() >= low && v->get<double>() <= high, Fault::Model, where_, ": '", key,
            "' is ", v->dump(), ", it must be a number from ", low, " to ", high);
    out = v->get<double>();
  }
  void operator()(const char* key, std::optional<int64_t>& out) const {
    const Json* v = find(key);
    if (!v) return;
    require(v->is_number_integer(), Fault::Model, where_, ": '", key, "' is ", v->dump(),
            ", it must be a whole number");
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
  const auto nested = config.find("text_config");
  if (nested == config.end() || !nested->is_object()) return {};
  return Reader(*nested, where).ids("eos_token_id");
}

template <class T>
T first_of(const std::optional<T>& a, const std::optional<T>& b, T neutral) {
  return a ? *a : b ? *b : neutral;
}

// Keys that change answers elsewhere, and the values with which they ask for nothing.
std::vector<std::string> not_followed(const Json& json) {
  static const Json idle = {{"num_beams", 1},
                            {"num_beam_groups", 1},
                            {"num_return_sequences", 1},
                            {"early_stopping", false},
                            {"length_penalty", 1},
                            {"diversity_penalty", 0},
                            {"typical_p", 1},
                            {"epsilon_cutoff", 0},
                            {"eta_cutoff", 0},
                            {"top_h", nullptr},
                            {"encoder_repetition_penalty", 1},
                            {"exponential_decay_length_penalty", nullptr},
                            {"penalty_alpha", nullptr},
                            {"guidance_scale", 1},
                            {"suppress_tokens", Json::array()},
                            {"begin_suppress_tokens", Json::array()},
                            {"bad_words_ids", Json::array()},
                            {"force_words_ids", Json::array()},
                            {"sequence_bias", nullptr},
                            {"constraints", nullptr},
                            {"forced_bos_token_id", nullptr},
                            {"forced_eos_token_id", nullptr},
                            {"min_length", 0},
                            {"max_time", nullptr},
                            {"max_new_tokens", nullptr},
                            {"stop_strings", Json::array()},
                            {"watermarking_config", nullptr}};
  std::vector<std::string> found;
  for (const auto& [key, value] : json.items())
    if (idle.contains(key) && !value.is_null() && value != idle[key] && !(value.is_structured() && value.empty())) {
      const std::string text = value.dump();
      found.push_back(key + " " + (text.size() > 40 ? text.substr(0, 37) + "..." : text));
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
  read("temperature", w.temperature, 0, 100);
  read("top_p", w.top_p, 0, 1);
  read("min_p", w.min_p, 0, 1);
  read("repetition_penalty", w.repetition_penalty, 1e-3, 1e3);
  read("top_k", w.top_k);
  read("min_new_tokens", w.min_new_tokens);
  read("no_repeat_ngram_size", w.no_repeat_ngram_size);
  if (w.top_p && *w.top_p == 0) w.top_p.reset();  // written by some for "off"
  out.eos = read.ids("eos_token_id");
  if (out.eos.empty()) out.eos = config_eos(folder);
  out.not_followed = not_followed(json);
  return out;
}

Sampling resolve(const SamplingWishes& r, const SamplingWishes& c) {
  Sampling s;
  const bool draws = r.temperature ? *r.temperature > 0 : first_of(r.do_sample, c.do_sample, false);
  s.temperature = draws ? first_of(r.temperature, c.temperature, 1.0) : 0;
  s.top_p = first_of(r.top_p, c.top_p, 1.0);
  s.min_p = first_of(r.min_p, c.min_p, 0.0);
  s.top_k = std::max<int64_t>(first_of(r.top_k, c.top_k, int64_t{0}), 0);
  s.repetition_penalty = first_of(r.repetition_penalty, c.repetition_penalty, 1.0);
  s.presence_penalty = first_of(r.presence_penalty, c.presence_penalty, 0.0);
  s.frequency_penalty = first_of(r.frequency_penalty, c.frequency_penalty, 0.0);
  s.no_repeat_ngram_size = std::max<int64_t>(first_of(r.no_repeat_ngram_size, c.no_repeat_ngram_size, int64_t{0}), 0);
  s.min_new_tokens = first_of(r.min_new_tokens, c.min_new_tokens, int64_t{0});
  if (const int64_t most = r.max_new_tokens.value_or(0); most > 0) s.max_new_tokens = most;
  return s;
}

}  // namespace apus
