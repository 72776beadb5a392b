// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/adapter_kinds.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/nearest.h"
#include "base/pattern.h"
#include "checkpoint/adapter_config.h"

namespace apus {
namespace {

template <class T>
T setting(const Json& json, const std::string& where, const char* key, T otherwise) {
  if (!json.contains(key) || json[key].is_null()) return otherwise;
  try {
    return json[key].get<T>();
  } catch (const nlohmann::json::exception&) {
    fail(Fault::Model, where, ": '", key, "' has an unexpected type");
  }
}

// Settings that PEFT gives every kind.
Json common_settings(const Json& lora) {
  Json out = Json::object();
  for (const char* key :
       {"auto_mapping", "base_model_name_or_path", "bias", "exclude_modules", "inference_mode", "layers_pattern",
        "layers_to_transform", "modules_to_save", "peft_version", "revision", "target_modules", "task_type"})
    out[key] = lora.at(key);
  return out;
}

Json initial_values(const LoraConfig& c) { return Json(c.init != "false"); }

void read_adalora(const Json& json, const std::string& where, LoraConfig& c) {
  const auto number = [&](const char* key, int64_t otherwise) { return setting<int64_t>(json, where, key, otherwise); };
  const auto real = [&](const char* key, double otherwise) { return setting<double>(json, where, key, otherwise); };
  AdaLoraSettings& a = c.adalora;
  c.r = number("init_r", 12), c.rank_pattern.clear();  // PEFT's pattern is of masks: the shapes in the file say as much
  if (c.alpha <= 0) c.alpha = static_cast<double>(c.r);
  a.target_rank = number("target_r", 8), a.total_steps = number("total_step", 0);
  a.first_steps = number("tinit", 0), a.last_steps = number("tfinal", 0), a.every = number("deltaT", 1);
  a.beta1 = real("beta1", 0.85), a.beta2 = real("beta2", 0.85), a.orthogonal = real("orth_reg_weight", 0.5);
}

void read_bone(const Json& json, const std::string& where, LoraConfig& c) {
  c.old_bone = json.value("peft_type", "") == "BONE";
  c.r = setting<int64_t>(json, where, "r", 64);
  const Json init = json.value("init_weights", Json(true));
  require(init.is_boolean(), Fault::Model, where, ": init_weights is ", init.dump(),
          ", a variant of Bone that is not available; true and false are");
  require(setting<double>(json, where, "miss_dropout", 0) == 0, Fault::Model, where, ": miss_dropout is not supported");
  c.init = init.dump();
}

void read_boft(const Json& json, const std::string& where, LoraConfig& c) {
  const auto number = [&](const char* key, int64_t otherwise) { return setting<int64_t>(json, where, key, otherwise); };
  c.boft = {number("boft_block_size", 4), number("boft_block_num", 0), number("boft_n_butterfly_factor", 1)};
  require((c.boft.block_size > 0) != (c.boft.block_num > 0) && c.boft.factors > 0, Fault::Model, where,
          ": one of boft_block_size and boft_block_num must be above 0, and boft_n_butterfly_factor");
  require(!setting<bool>(json, where, "fan_in_fan_out", false), Fault::Model, where,
          ": fan_in_fan_out is not supported");
  c.init = setting<bool>(json, where, "init_weights", true) ? "true" : "false";
}

void read_bottleneck(const Json& json, const std::string& where, LoraConfig& c) {
  c.r = setting<int64_t>(json, where, "adapter_length", 128), c.width = setting<int64_t>(json, where, "dim", 0);
  c.act = setting<std::string>(json, where, "act_layer", "gelu");
  require(std::find(bottleneck_acts().begin(), bottleneck_acts().end(), c.act) != bottleneck_acts().end(), Fault::Model,
          where, ": act_layer ", c.act, " is not available; possible: ", join(bottleneck_acts()));
  require(!c.target_regex.empty() && setting<std::string>(json, where, "method_name", "forward") == "forward" &&
              json.value("hidden_pos", Json(0)) == 0,
          Fault::Model, where, ": only adapters behind what a module named by an expression gives are available");
}

Json bottleneck_json(Json /*lora*/, const LoraConfig& c) {
  return {{"act_layer", c.act},      {"adapter_length", c.r},           {"dim", c.width},
          {"hidden_pos", 0},         {"method_name", "forward"},        {"model_key_mapping", nullptr},
          {"swift_type", "ADAPTER"}, {"target_modules", c.target_regex}};
}

Json adalora_json(Json out, const LoraConfig& c) {
  const AdaLoraSettings& a = c.adalora;
  out["r"] = 8;  // PEFT's own default, which AdaLoRA does not look at
  out["init_r"] = c.r, out["target_r"] = a.target_rank, out["total_step"] = std::max<int64_t>(1, a.total_steps);
  out["tinit"] = a.first_steps, out["tfinal"] = a.last_steps, out["deltaT"] = a.every;
  out["beta1"] = a.beta1, out["beta2"] = a.beta2, out["orth_reg_weight"] = a.orthogonal;
  // Of layers whose file holds fewer ranks than they began with: so many of them are left.
  Json left = Json::object();
  for (const auto& [module, rank] : c.ranks_left) {
    std::vector<bool> mask(static_cast<size_t>(c.r), false);
    std::fill_n(mask.begin(), std::min(rank, c.r), true);
    left[module + ".lora_E"] = mask;
  }
  out["rank_pattern"] = left.empty() ? Json() : left;
  return out;
}

Json bone_json(Json lora, const LoraConfig& c) {
  Json out = common_settings(lora);
  out["init_weights"] = initial_values(c), out["r"] = c.r;
  if (!c.old_bone) out["mini_r"] = 1, out["miss_dropout"] = 0.0;
  return out;
}

Json boft_json(Json lora, const LoraConfig& c) {
  Json out = common_settings(lora);
  out["boft_block_num"] = c.boft.block_num, out["boft_block_size"] = c.boft.block_size;
  out["boft_n_butterfly_factor"] = c.boft.factors;
  out["boft_dropout"] = 0.0, out["fan_in_fan_out"] = false, out["init_weights"] = initial_values(c);
  return out;
}

void read_ia3(const Json& json, const std::string& where, LoraConfig& c) {
  require(!setting<bool>(json, where, "fan_in_fan_out", false), Fault::Model, where,
          ": fan_in_fan_out is not supported");
  c.init = setting<bool>(json, where, "init_ia3_weights", true) ? "true" : "false";
}

void read_fourier(const Json& json, const std::string& where, LoraConfig& c) {
  c.fourier = {setting<int64_t>(json, where, "n_frequency", 1000),
               setting<int64_t>(json, where, "random_loc_seed", 777), setting<double>(json, where, "scaling", 150)};
  require(
      !setting<bool>(json, where, "fan_in_fan_out", false) && json.value("n_frequency_pattern", Json::object()).empty(),
      Fault::Model, where, ": fan_in_fan_out and n_frequency_pattern are not supported");
  require(c.fourier.seed >= 0 && c.fourier.seed < int64_t{1} << 32, Fault::Model, where,
          ": random_loc_seed must be of 32 bits");
  c.init = setting<bool>(json, where, "init_weights", false) ? "false" : "true";  // true: zeros
}

void read_vera(const Json& json, const std::string& where, LoraConfig& c) {
  c.r = setting<int64_t>(json, where, "r", 256), c.dropout = setting<double>(json, where, "vera_dropout", 0);
  c.vera = {setting<int64_t>(json, where, "projection_prng_key", 0), setting<double>(json, where, "d_initial", 0.1),
            setting<bool>(json, where, "save_projection", true)};
  require(!setting<bool>(json, where, "fan_in_fan_out", false), Fault::Model, where,
          ": fan_in_fan_out is not supported");
  c.init = setting<bool>(json, where, "init_weights", true) ? "true" : "false";
}

Json vera_json(Json lora, const LoraConfig& c) {
  Json out = common_settings(lora);
  out.erase("exclude_modules");
  out["d_initial"] = c.vera.first_d, out["fan_in_fan_out"] = false, out["init_weights"] = initial_values(c);
  out["projection_prng_key"] = c.vera.key, out["r"] = c.r, out["save_projection"] = c.vera.saves;
  out["vera_dropout"] = c.dropout;
  return out;
}

Json ia3_json(Json lora, const LoraConfig& c) {
  Json out = common_settings(lora);
  for (const char* key : {"bias", "layers_pattern", "layers_to_transform"}) out.erase(key);
  out["fan_in_fan_out"] = false, out["init_ia3_weights"] = initial_values(c);
  out["feedforward_modules"] = c.feedforward_regex.empty() ? Json(c.feedforward_modules) : Json(c.feedforward_regex);
  return out;
}

void read_norms(const Json&, const std::string&, LoraConfig& c) { c.init = "true"; }

Json norms_json(Json lora, const LoraConfig& /*c*/) {
  Json out = common_settings(lora);
  for (const char* key : {"bias", "layers_pattern", "layers_to_transform"}) out.erase(key);
  return out;
}

Json fourier_json(Json lora, const LoraConfig& c) {
  Json out = common_settings(lora);
  out["fan_in_fan_out"] = false, out["init_weights"] = c.init == "false", out["n_frequency"] = c.fourier.frequencies;
  out["n_frequency_pattern"] = Json::object(), out["random_loc_seed"] = c.fourier.seed;
  out["scaling"] = c.fourier.scaling;
  return out;
}

void read_prompt(const Json& json, const std::string& where, LoraConfig& c) {
  const auto number = [&](const char* key, int64_t otherwise) { return setting<int64_t>(json, where, key, otherwise); };
  PromptSettings& p = c.prompt;
  p.words = number("num_virtual_tokens", 0), p.hidden = number("token_dim", 0);
  p.heads = number("num_attention_heads", 0), p.layers = number("num_layers", 0);
  p.text = setting<std::string>(json, where, "prompt_tuning_init_text", "");
  require(p.words > 0 && p.words <= kMostPromptWords, Fault::Model, where, ": num_virtual_tokens is ", p.words,
          "; 1 to ", kMostPromptWords, " are possible");
  require(number("num_transformer_submodules", 1) == 1, Fault::Model, where,
          ": num_transformer_submodules above 1 is of models with encoder and decoder, which are not available");
  c.init = setting<std::string>(json, where, "prompt_tuning_init", "RANDOM");
}

Json prompt_json(Json lora, const LoraConfig& c) {
  const PromptSettings& p = c.prompt;
  Json out = Json::object();
  for (const char* key : {"auto_mapping", "base_model_name_or_path", "inference_mode", "modules_to_save",
                          "peft_version", "revision", "task_type"})
    out[key] = lora.at(key);
  const bool text = c.init == "TEXT";
  out["num_virtual_tokens"] = p.words, out["token_dim"] = p.hidden, out["num_transformer_submodules"] = 1;
  out["num_attention_heads"] = p.heads, out["num_layers"] = p.layers, out["prompt_tuning_init"] = c.init;
  out["prompt_tuning_init_text"] = text ? Json(p.text) : Json(), out["tokenizer_kwargs"] = Json();
  out["tokenizer_name_or_path"] = text ? Json(c.base_model) : Json();
  return out;
}

// Read already, and written as it is.
void read_lora(const Json&, const std::string&, LoraConfig&) {}
Json lora_json(Json lora, const LoraConfig&) { return lora; }

struct Kind {
  std::string word, title;
  std::vector<std::string> peft;  // what is written first
  std::string prefix;
  void (*read)(const Json&, const std::string&, LoraConfig&);
  Json (*write)(Json, const LoraConfig&);
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"lora", "LoRA", {"LORA"}, "lora_", read_lora, lora_json},
      {"adalora", "AdaLoRA", {"ADALORA"}, "lora_", read_adalora, adalora_json},
      {"bone", "Bone", {"MISS", "BONE"}, "miss_", read_bone, bone_json},
      {"boft", "BOFT", {"BOFT"}, "boft_", read_boft, boft_json},
      {"ia3", "IA3", {"IA3"}, "ia3_", read_ia3, ia3_json},
      {"fourierft", "FourierFT", {"FOURIERFT"}, "fourierft_", read_fourier, fourier_json},
      {"vera", "VeRA", {"VERA"}, "vera_", read_vera, vera_json},
      {"ln_tuning", "LN tuning", {"LN_TUNING"}, "ln_tuning_", read_norms, norms_json},
      {"prompt_tuning", "Prompt tuning", {"PROMPT_TUNING"}, "prompt_", read_prompt, prompt_json},
      {"adapter", "Bottleneck", {"ADAPTER"}, "adapter_", read_bottleneck, bottleneck_json}};
  return all;
}

const Kind& kind_of(const LoraConfig& config) {
  for (const Kind& kind : kinds())
    if (kind.word == config.kind) return kind;
  fail(Fault::Bug, "no kind of adapter is called ", config.kind);
}

}  // namespace

const std::vector<std::string>& adapter_kinds() {
  static const std::vector<std::string> words = [] {
    std::vector<std::string> out;
    for (const Kind& kind : kinds()) out.push_back(kind.word);
    return out;
  }();
  return words;
}

// LongLoRA is LoRA, trained with another attention. Other kinds are held whole, and AdaLoRA looks at all ranks of all
// layers after every update.
AdapterAbilities adapter_abilities(const std::string& tuner_type) {
  if (tuner_type == "longlora") return {.whole_rows = true};
  return {.cut = tuner_type == "lora" || tuner_type == "ln_tuning" || tuner_type == "full" || tuner_type == "llamapro",
          .answers = tuner_type != "adapter" && tuner_type != "prompt_tuning",
          .slices = tuner_type != "adalora",
          .merges = tuner_type != "adapter" && tuner_type != "prompt_tuning",
          .own_words = tuner_type == "prompt_tuning"};
}

std::vector<std::string> adapter_words() {
  std::vector<std::string> words = adapter_kinds();
  words.push_back("longlora");
  return words;
}

bool is_adapter_kind(const std::string& word) {
  const std::vector<std::string> words = adapter_words();
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string adapter_title(const LoraConfig& config) {
  return config.kind != "lora" ? kind_of(config).title : config.dora ? "DoRA" : config.rslora ? "rsLoRA" : "LoRA";
}

std::string adapter_prefix(const LoraConfig& config) { return config.old_bone ? "bone_" : kind_of(config).prefix; }

int64_t boft_block(const BoftSettings& boft, const std::string& module, int64_t in) {
  const int64_t given = boft.block_size > 0 ? boft.block_size : boft.block_num;
  require(in % given == 0, Fault::Usage, boft.block_size > 0 ? "--boft_block_size " : "--boft_block_num ", given,
          " does not divide the ", in, " inputs of ", module,
          ": choose another, or leave the layer out of "
          "--target_modules");
  const int64_t block = boft.block_size > 0 ? given : in / given;
  const int64_t runs = int64_t{1} << std::min<int64_t>(boft.factors - 1, 40);  // blocks that the last factor mixes
  require(boft.factors == 1 || (block % 2 == 0 && (in / block) % runs == 0), Fault::Usage, "--boft_n_butterfly_factor ",
          boft.factors, " needs blocks of an even size, and a multiple of ", runs, " of them; ", module, " has ",
          in / block, " of ", block);
  return block;
}

int64_t change_elements(const LoraConfig& c, const std::string& module, int64_t in, int64_t out) {
  if (c.kind == "bone") return c.r * out;
  if (c.kind == "ia3") return c.scales_inputs(module) ? in : out;
  if (c.kind == "fourierft") return c.fourier.frequencies;
  if (c.kind == "vera") return c.r + out;
  if (c.kind == "ln_tuning") return 0;  // trained whole
  if (c.kind == "prompt_tuning") return c.prompt.words * out;
  if (c.kind == "adapter") return 2 * c.r * out + c.r + out;
  if (c.kind == "boft") return c.boft.factors * in * boft_block(c.boft, module, in) + out;
  const int64_t rank = c.rank_of(module);
  return rank * (in + out) + (c.kind == "adalora" ? rank : 0) + (c.dora ? out : 0) + (c.lora_bias ? out : 0);
}

const std::vector<std::string>& bottleneck_acts() {
  static const std::vector<std::string> all = {"gelu", "gelu_pytorch_tanh", "relu", "silu", "tanh"};
  return all;
}

bool ends_feed_forward(const std::string& module, const std::string& expression) {
  const std::string last = module.substr(module.rfind('.') + 1);
  return (last == "down_proj" || last == "c_proj") &&
         Pattern(expression, "target_modules").matches(module.substr(0, module.size() - last.size() - 1));
}

std::string scaled_inputs_expression(const std::vector<std::string>& linear_modules) {
  for (const char* block : {"mlp", "feed_forward", "ffn", "experts"})
    if (std::any_of(linear_modules.begin(), linear_modules.end(),
                    [&](const std::string& module) { return module.find(str(".", block, ".")) != std::string::npos; }))
      return str(".*", block, ".*");
  return "";
}

std::vector<std::string> norm_names(const std::vector<std::string>& modules, bool whole) {
  std::set<std::string> names;
  for (const std::string& module : modules) {
    const std::string last = module.substr(module.rfind('.') + 1);
    if (last.ends_with("norm") || last.starts_with("ln_")) names.insert(whole ? module : last);
  }
  return {names.begin(), names.end()};
}

std::string feed_forward_expression(const std::vector<std::string>& linear_modules) {
  const Pattern dense("(.*)\\.layers\\.[0-9]+\\.(mlp|feed_forward)\\.(down_proj|c_proj)", "feed-forwards");
  std::string expression;
  for (const std::string& module : linear_modules) {
    require(module.find(".experts.") == std::string::npos, Fault::Usage,
            "--tuner_type adapter is for models without mixtures of experts: use --tuner_type lora");
    if (!dense.matches(module)) continue;
    const std::string block = module.substr(0, module.rfind('.')), inner = block.substr(block.rfind('.') + 1);
    std::string escaped;
    for (const char c : block.substr(0, block.find(".layers.") + 8)) escaped += c == '.' ? "\\." : std::string(1, c);
    const std::string here = escaped + "\\d+\\." + inner;
    require(expression.empty() || expression == here, Fault::Usage,
            "--tuner_type adapter is for models that read text only: this one has feed-forwards of several kinds");
    expression = here;
  }
  require(!expression.empty(), Fault::Usage, "--tuner_type adapter: this model has no feed-forward of the usual form");
  return expression;
}

void read_adapter_kind(const Json& json, const std::string& where, LoraConfig& config) {
  const bool nested = !json.contains("peft_type") && json.contains("swift_type");  // ms-swift's own
  const std::string type = setting<std::string>(json, where, nested ? "swift_type" : "peft_type", "");
  for (const Kind& kind : kinds()) {
    if (std::find(kind.peft.begin(), kind.peft.end(), type) == kind.peft.end()) continue;
    config.kind = kind.word;
    require(config.kind == "lora" || (!config.dora && !config.lora_bias && config.target_parameters.empty()),
            Fault::Model, where, ": use_dora, lora_bias and target_parameters are of LoRA alone");
    kind.read(json, where, config);
    return;
  }
  fail(Fault::Model, where, ": peft_type is '", type,
       "'; adapters of these kinds can be used: LORA (with rsLoRA and DoRA), ADALORA, MISS (Bone), BOFT, IA3, "
       "FOURIERFT, VERA, LN_TUNING, PROMPT_TUNING, and ms-swift's ADAPTER");
}

Json kind_config_json(Json lora, const LoraConfig& config) {
  Json out = kind_of(config).write(std::move(lora), config);
  if (config.kind != "adapter") out["peft_type"] = config.old_bone ? "BONE" : kind_of(config).peft.front();
  return out;
}

}  // namespace apus
