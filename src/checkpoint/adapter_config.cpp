// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/adapter_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "checkpoint/file_names.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

bool ends_with_part(const std::string& module, const std::string& suffix) {
  return module == suffix || (module.size() > suffix.size() && module.ends_with(suffix) &&
                              module[module.size() - suffix.size() - 1] == '.');
}

bool any_suffix(const std::string& module, const std::vector<std::string>& suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(), [&](const std::string& s) { return ends_with_part(module, s); });
}

// PEFT's rule for layers_to_transform: the last number inside the name, or the last one behind a part that
// layers_pattern names. -1: none.
int64_t layer_of(const std::string& module, const std::vector<std::string>& behind) {
  std::vector<std::string> parts;
  for (size_t at = 0, end; at <= module.size(); at = end + 1) {
    end = std::min(module.find('.', at), module.size());
    parts.push_back(module.substr(at, end - at));
  }
  for (size_t i = parts.size() < 2 ? 0 : parts.size() - 2; i >= 2; --i) {
    const std::string& part = parts[i];
    const bool number = !part.empty() && part.size() < 10 &&
                        std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); });
    if (number && (behind.empty() || std::find(behind.begin(), behind.end(), parts[i - 1]) != behind.end()))
      return std::stoll(part);
  }
  return -1;
}

template <class Value>
Value by_pattern(const std::vector<std::pair<std::string, Value>>& patterns, const std::string& module,
                 Value otherwise) {
  for (const auto& [key, value] : patterns)
    if (Pattern("(.*\\.)?(" + key + ")$", "rank_pattern or alpha_pattern").begins(module)) return value;
  return otherwise;
}

struct Reader {
  const Json& json;
  std::string where;

  bool has(const char* key) const { return json.contains(key) && !json[key].is_null(); }
  template <class T>
  T value(const char* key, T otherwise) const {
    if (!has(key)) return otherwise;
    try {
      return json[key].get<T>();
    } catch (const nlohmann::json::exception&) {
      fail(Fault::Model, where, ": '", key, "' has an unexpected type");
    }
  }
  // A list of names, or one text that is a regular expression.
  void names(const char* key, std::vector<std::string>& list, std::string& regex) const {
    if (!has(key)) return;
    if (json[key].is_string())
      regex = json[key].get<std::string>();
    else
      list = value<std::vector<std::string>>(key, {});
  }
  template <class Value>
  std::vector<std::pair<std::string, Value>> patterns(const char* key) const {
    std::vector<std::pair<std::string, Value>> out;
    if (has(key))
      for (const auto& [name, number] : json[key].items()) {
        require(number.is_number(), Fault::Model, where, ": '", key, "' must map names to numbers");
        out.emplace_back(name, number.template get<Value>());
      }
    return out;
  }
  void refuse_features() const {
    for (const char* key : {"use_qalora", "fan_in_fan_out"})
      require(!value<bool>(key, false), Fault::Model, where, ": ", key, " is not supported");
    for (const char* key : {"layer_replication", "alora_invocation_tokens", "use_bdlora", "arrow_config"})
      require(!has(key) || json[key] == false || json[key].empty(), Fault::Model, where, ": ", key,
              " is not supported");
    require(!value<bool>("lora_bias", false) || !value<bool>("use_dora", false), Fault::Model, where,
            ": lora_bias with use_dora is not supported");
  }
  // [5, 6], or {"embed_tokens": [5, 6]}
  std::map<std::string, std::vector<int64_t>> token_rows() const {
    const char* const key = "trainable_token_indices";
    if (!has(key) || json[key].empty()) return {};
    if (json[key].is_array()) return {{"", value<std::vector<int64_t>>(key, {})}};
    return value<std::map<std::string, std::vector<int64_t>>>(key, {});
  }
};

}  // namespace

std::optional<ExpertMatrix> expert_matrix(const std::string& module) {
  const size_t side = module.rfind('.');
  if (side == std::string::npos || side == 0) return std::nullopt;
  const size_t number = module.rfind('.', side - 1);
  if (number == std::string::npos) return std::nullopt;
  const std::string digits = module.substr(number + 1, side - number - 1);
  ExpertMatrix m{.experts = module.substr(0, number), .expert = 0, .side = module.substr(side + 1)};
  const bool counts = !digits.empty() && digits.size() < 10 &&
                      std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c); });
  if (!counts || !ends_with_part(m.experts, "experts") ||
      (m.side != "gate_proj" && m.side != "up_proj" && m.side != "down_proj"))
    return std::nullopt;
  m.expert = std::stoll(digits);
  return m;
}

bool LoraConfig::stacks(const std::string& module) const {
  if (target_parameters.empty()) return false;
  const auto matrix = expert_matrix(module);
  return matrix && any_suffix(matrix->parameter(), target_parameters);
}

bool LoraConfig::targets(const std::string& module) const {
  if (kind == "adapter") return ends_feed_forward(module, target_regex);
  if (!target_parameters.empty() && expert_matrix(module)) return stacks(module);
  if (!exclude_regex.empty() && Pattern(exclude_regex, "exclude_modules").matches(module)) return false;
  if (any_suffix(module, exclude_modules)) return false;
  if (!target_regex.empty()) return Pattern(target_regex, "target_modules").matches(module);
  // Named whole.
  if (std::find(target_modules.begin(), target_modules.end(), module) != target_modules.end()) return true;
  if (!any_suffix(module, target_modules)) return false;
  return layers_to_transform.empty() || std::find(layers_to_transform.begin(), layers_to_transform.end(),
                                                  layer_of(module, layers_pattern)) != layers_to_transform.end();
}

// PEFT compares ends of names, not parts ("norm" means every ...layernorm too), and saves a module with its children.
bool LoraConfig::saves(const std::string& module) const {
  if (kind == "ln_tuning" && targets(module)) return true;
  for (size_t end = module.size(); end != std::string::npos && end > 0; end = module.rfind('.', end - 1)) {
    const std::string outer = module.substr(0, end);
    if (std::any_of(modules_to_save.begin(), modules_to_save.end(),
                    [&](const std::string& name) { return outer.ends_with(name); }))
      return true;
  }
  return false;
}
bool LoraConfig::scales_inputs(const std::string& module) const {
  if (!feedforward_regex.empty()) return Pattern(feedforward_regex, "feedforward_modules").matches(module);
  return any_suffix(module, feedforward_modules);
}
int64_t LoraConfig::rank_of(const std::string& module) const {
  if (const auto left = ranks_left.find(module); left != ranks_left.end()) return left->second;
  return by_pattern(rank_pattern, stacks(module) ? expert_matrix(module)->parameter() : module, r);
}
double LoraConfig::alpha_of(const std::string& module) const {
  return by_pattern(alpha_pattern, stacks(module) ? expert_matrix(module)->parameter() : module, alpha);
}
std::vector<int64_t> LoraConfig::rows_of(const std::string& module) const {
  for (const auto& [name, rows] : token_rows)
    if (ends_with_part(module, name.empty() ? "embed_tokens" : name)) return rows;
  return {};
}

std::map<std::string, std::vector<int64_t>> listed_token_rows(const std::vector<std::string>& words,
                                                              const std::function<int64_t(const std::string&)>& id_of) {
  const std::string flag = "--trainable_token_indices";
  const auto id = [&](const Json& item) {
    require(item.is_number_integer() || item.is_string(), Fault::Usage, flag, ": ", item.dump(),
            " is neither an id nor a token");
    return item.is_string() ? id_of(item.get<std::string>()) : item.get<int64_t>();
  };
  const auto ids = [&](const Json& list) {
    require(list.is_array() && !list.empty(), Fault::Usage, flag, ": ", list.dump(), " is no list of ids");
    std::vector<int64_t> all;
    for (const Json& item : list) all.push_back(id(item));
    return all;
  };
  if (words.empty()) return {};
  if (words.size() > 1 || (words[0][0] != '{' && words[0][0] != '[')) {
    Json list = Json::array();
    for (const std::string& word : words) {
      const bool number = std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c); });
      list.push_back(number && word.size() < 10 ? Json(std::stoll(word)) : Json(word));
    }
    return {{"", ids(list)}};
  }
  const Json given = parse_json(words[0], flag, Fault::Usage);
  if (given.is_array()) return {{"", ids(given)}};
  std::map<std::string, std::vector<int64_t>> all;
  for (const auto& [module, list] : given.items()) all[module] = ids(list);
  require(!all.empty() && !all.count(""), Fault::Usage, flag, ": ", words[0], " names no module");
  return all;
}

std::string without_base_layer(const std::string& parameter) {
  const std::string part = ".base_layer.";
  const size_t at = parameter.rfind(part);
  return at == std::string::npos ? parameter : parameter.substr(0, at + 1) + parameter.substr(at + part.size());
}

fs::path adapter_folder(const fs::path& dir, const LoraConfig& config) {
  return config.kind == "adapter" ? dir / "default" : dir;
}

fs::path adapter_folder(const fs::path& dir) {
  const fs::path inner = dir / "default";
  return !fs::exists(dir / kAdapterConfigFile) && fs::exists(inner / kAdapterConfigFile) ? inner : dir;
}

bool is_adapter_dir(const fs::path& dir) { return fs::exists(adapter_folder(dir) / kAdapterConfigFile); }

LoraConfig read_adapter_config(const fs::path& dir) {
  const fs::path path = adapter_folder(dir) / kAdapterConfigFile;
  require(fs::exists(path), Fault::Usage, dir.string(), " is no adapter: it holds no adapter_config.json",
          fs::exists(dir / kModelConfigFile) ? ". It is a whole model: give it with --model" : "");
  const Json json = parse_json(read_file(path, 16 << 20), path.string(), Fault::Model);
  require(json.is_object(), Fault::Model, path.string(), " must hold an object");
  const Reader in{json, path.string()};
  in.refuse_features();
  LoraConfig c;
  c.base_model = in.value<std::string>("base_model_name_or_path", "");
  c.r = in.value<int64_t>("r", 8), c.alpha = in.value<double>("lora_alpha", 8),
  c.dropout = in.value<double>("lora_dropout", 0);
  c.rslora = in.value<bool>("use_rslora", false), c.dora = in.value<bool>("use_dora", false);
  c.bias = in.value<std::string>("bias", "none");
  c.lora_bias = in.value<bool>("lora_bias", false), c.token_rows = in.token_rows();
  in.names("target_modules", c.target_modules, c.target_regex);
  c.target_parameters = in.value<std::vector<std::string>>("target_parameters", {});
  in.names("feedforward_modules", c.feedforward_modules, c.feedforward_regex);
  in.names("exclude_modules", c.exclude_modules, c.exclude_regex);
  c.modules_to_save = in.value<std::vector<std::string>>("modules_to_save", {});
  if (in.has("layers_to_transform"))
    c.layers_to_transform = json["layers_to_transform"].is_number()
                                ? std::vector<int64_t>{json["layers_to_transform"].get<int64_t>()}
                                : in.value<std::vector<int64_t>>("layers_to_transform", {});
  if (in.has("layers_pattern"))
    c.layers_pattern = json["layers_pattern"].is_string()
                           ? std::vector<std::string>{json["layers_pattern"].get<std::string>()}
                           : in.value<std::vector<std::string>>("layers_pattern", {});
  // Of AdaLoRA it holds masks.
  if (json.value("peft_type", Json()) != "ADALORA") c.rank_pattern = in.patterns<int64_t>("rank_pattern");
  c.alpha_pattern = in.patterns<double>("alpha_pattern");
  if (in.has("init_lora_weights"))
    c.init = json["init_lora_weights"].is_string() ? json["init_lora_weights"].get<std::string>()
                                                   : json["init_lora_weights"].dump();
  c.task_type = in.value<std::string>("task_type", "");
  read_adapter_kind(json, path.string(), c);
  require(c.r > 0, Fault::Model, path.string(), ": the rank r must be above 0");
  require(
      c.kind == "prompt_tuning" || !c.target_modules.empty() || !c.target_regex.empty() || !c.target_parameters.empty(),
      Fault::Model, path.string(), ": target_modules is missing");
  require(c.target_parameters.empty() || (!c.dora && !c.lora_bias), Fault::Model, path.string(),
          ": target_parameters with use_dora or lora_bias is not known to PEFT either");
  return c;
}

ScoreHead head_of_adapter(const fs::path& dir, int64_t labels) {
  if (read_adapter_config(dir).task_type == "TOKEN_CLS") return word_head(labels);
  const fs::path file = dir / kArgumentsFile;
  const Json run = fs::exists(file) ? parse_json(read_file(file, 16 << 20), file.string(), Fault::Model) : Json();
  const bool says = run.is_object() && run.contains("problem_type") && run["problem_type"].is_string();
  return {labels, says ? run["problem_type"].get<std::string>() : usual_problem(labels)};
}

namespace {
Json token_rows_json(const LoraConfig& c) {
  if (c.token_rows.empty()) return {};
  const auto& [module, rows] = *c.token_rows.begin();
  return module.empty() ? Json(rows) : Json(c.token_rows);
}

Json lora_config_json(const LoraConfig& c) {
  const auto list = [](const std::vector<std::string>& names, const std::string& regex) {
    return !regex.empty() ? Json(regex) : names.empty() ? Json() : Json(names);
  };
  Json ranks = Json::object(), alphas = Json::object();
  for (const auto& [name, rank] : c.rank_pattern) ranks[name] = rank;
  const auto number = [](double v) {
    return v == static_cast<double>(static_cast<int64_t>(v)) ? Json(static_cast<int64_t>(v)) : Json(v);
  };
  for (const auto& [name, alpha] : c.alpha_pattern) alphas[name] = number(alpha);
  std::vector<std::string> targets = c.target_modules;
  std::sort(targets.begin(), targets.end());
  return {{"alora_invocation_tokens", nullptr},
          {"alpha_pattern", alphas},
          {"arrow_config", nullptr},
          {"auto_mapping", nullptr},
          {"base_model_name_or_path", c.base_model},
          {"bias", c.bias},
          {"corda_config", nullptr},
          {"ensure_weight_tying", false},
          {"eva_config", nullptr},
          {"exclude_modules", list(c.exclude_modules, c.exclude_regex)},
          {"fan_in_fan_out", false},
          {"inference_mode", true},
          {"init_lora_weights", c.init == "true"    ? Json(true)
                                : c.init == "false" ? Json(false)
                                                    : Json(c.init)},
          {"layer_replication", nullptr},
          {"layers_pattern", c.layers_pattern.empty() ? Json() : Json(c.layers_pattern)},
          {"layers_to_transform", c.layers_to_transform.empty() ? Json() : Json(c.layers_to_transform)},
          {"loftq_config", Json::object()},
          {"lora_alpha", number(c.alpha)},
          {"lora_bias", c.lora_bias},
          {"lora_dropout", c.dropout},
          {"megatron_config", nullptr},
          {"megatron_core", "megatron.core"},
          {"modules_to_save", c.modules_to_save.empty() ? Json() : Json(c.modules_to_save)},
          {"peft_type", "LORA"},
          {"peft_version", "0.18.0"},
          {"qalora_group_size", 16},
          {"r", c.r},
          {"rank_pattern", ranks},
          {"revision", nullptr},
          // An empty list: without one PEFT chooses layers itself.
          {"target_modules", targets.empty() && c.target_regex.empty() ? Json::array() : list(targets, c.target_regex)},
          {"target_parameters", list(c.target_parameters, "")},
          {"task_type", c.task_type.empty() ? Json() : Json(c.task_type)},
          {"trainable_token_indices", token_rows_json(c)},
          {"use_dora", c.dora},
          {"use_qalora", false},
          {"use_rslora", c.rslora}};
}
}  // namespace

Json adapter_config_json(const LoraConfig& c) { return kind_config_json(lora_config_json(c), c); }

std::vector<std::string> all_linear_suffixes(const std::vector<std::string>& linear_modules) {
  // Heads (output, output_layer: of InternLM 2 and ChatGLM) and routers.
  const std::set<std::string> left_out = {"lm_head", "output",     "output_layer", "score",
                                          "v_head",  "classifier", "router",       "shared_expert_gate"};
  std::set<std::string> suffixes;
  for (const std::string& module : linear_modules) {
    const std::string last = module.substr(module.rfind('.') + 1);
    if (!left_out.count(last) && !module.ends_with(".mlp.gate")) suffixes.insert(last);  // mlp.gate is a router
  }
  return {suffixes.begin(), suffixes.end()};
}

std::vector<std::string> target_suffixes(const std::vector<std::string>& words,
                                         const std::vector<std::string>& linear_modules) {
  std::vector<std::string> suffixes;
  for (const std::string& word : words) {
    const std::vector<std::string> meant = word == "all-linear"      ? all_linear_suffixes(linear_modules)
                                           : word == "all-embedding" ? std::vector<std::string>{"embed_tokens"}
                                           : word == "all-router"    ? std::vector<std::string>{"gate"}
                                                                     : std::vector<std::string>{word};
    suffixes.insert(suffixes.end(), meant.begin(), meant.end());
  }
  return suffixes;
}

std::vector<std::string> saved_suffixes(const std::vector<std::string>& words,
                                        const std::vector<std::string>& modules) {
  std::vector<std::string> suffixes;
  for (const std::string& word : words) {
    std::vector<std::string> meant = word == "all-norm" ? norm_names(modules) : std::vector<std::string>();
    if (meant.empty()) meant = {word == "all-embedding" ? "embed_tokens" : word};
    suffixes.insert(suffixes.end(), meant.begin(), meant.end());
  }
  return suffixes;
}

void aim_at_norms(LoraConfig& config, const std::vector<std::string>& words, const std::vector<std::string>& modules,
                  bool whole) {
  if (std::find(words.begin(), words.end(), "all-linear") == words.end()) return;
  config.target_modules = norm_names(modules, whole), config.target_regex.clear();
}

}  // namespace apus
