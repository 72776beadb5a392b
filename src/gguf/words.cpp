// SPDX-License-Identifier: Apache-2.0
#include "gguf/words.h"

#include <algorithm>

namespace apus::words {

namespace {

// Of each head's rows the first, which make keys, or the others, which make values.
GgufTurn::Rows part_of_heads(const GgufSizes& s, int64_t all, bool keys) {
  GgufTurn::Rows rows;
  const int64_t each = s.heads > 0 ? all / s.heads : 0, values = s.of("v_head_dim", 128), still = each - values;
  for (int64_t h = 0; h < s.heads; ++h) add_rows(rows, h * each + (keys ? 0 : still), keys ? still : values);
  return rows;
}
GgufTurn::Rows keys_of_heads(const GgufSizes& s, int64_t all) { return part_of_heads(s, all, true); }
GgufTurn::Rows values_of_heads(const GgufSizes& s, int64_t all) { return part_of_heads(s, all, false); }
int64_t heads_of(const GgufSizes& s) { return s.heads; }

}  // namespace

std::vector<GgufPair> latent_names() {
  return {{"self_attn.kv_b_proj", "attn_k_b", {.rows = keys_of_heads, .heads = heads_of, .heads_turned = true}},
          {"self_attn.kv_b_proj", "attn_v_b", {.rows = values_of_heads, .heads = heads_of}},
          {"self_attn.kv_b_proj", "attn_kv_b", {}, /*only_read=*/true}};
}

void read_latent(const GgufSays& file, Json& config) {
  const auto query = file.integer("attention.q_lora_rank");
  const int64_t turned = file.needed("rope.dimension_count");
  const auto whole = file.integer("attention.key_length_mla"), value = file.integer("attention.value_length_mla");
  config["q_lora_rank"] = query ? Json(*query) : Json();
  config["kv_lora_rank"] = file.needed("attention.kv_lora_rank");
  config["qk_rope_head_dim"] = config["head_dim"] = turned;
  config["qk_nope_head_dim"] = (whole ? *whole : file.needed("attention.key_length")) - turned;
  const GgufSizes s = GgufSizes::of_config(config);
  config["v_head_dim"] = value ? *value : file.integer("attention.value_length").value_or(s.hidden / s.heads);
  config["attention_bias"] = file.tensor("blk.0.attn_kv_a_mqa.bias") != nullptr;
  config["num_key_value_heads"] = config["num_attention_heads"];
  read_latent_yarn(file, config);
}

void read_latent_yarn(const GgufSays& file, Json& config) {
  const auto found = config.find("rope_scaling");
  if (found == config.end() || !found->is_object() || found->value("rope_type", "") != "yarn") return;
  constexpr double kOfFile = 0.1;  // the file's number is so much of config.json's
  const double scale = shortest_f32(file.number("rope.scaling.yarn_log_multiplier").value_or(0) / kOfFile);
  if (scale != 0) (*found)["mscale"] = (*found)["mscale_all_dim"] = scale;
}

int64_t mamba_groups(const GgufSizes& s) { return std::max<int64_t>(1, s.of("mamba_n_groups", s.of("n_groups", 1))); }

std::vector<GgufPair> mamba_names(const std::string& block) {
  return {{block + ".in_proj", "ssm_in"},
          {block + ".conv1d", "ssm_conv1d", {.drops_one = true}},
          {block + ".dt_bias", "ssm_dt.bias"},
          {block + ".A_log", "ssm_a", {.numbers = GgufTurn::Numbers::MinusExp, .adds_last = true}},
          {block + ".D", "ssm_d", {.adds_last = true}},
          {block + ".norm", "ssm_norm", {.rows_of_one = mamba_groups}},
          {block + ".out_proj", "ssm_out"}};
}

void write_without_attention(GgufSettingsWriter& out) {
  out.whole("feed_forward_length", 0);
  out.whole("attention.head_count", 0);
  for (const char* name : {"attention.head_count_kv", "attention.key_length", "attention.value_length",
                           "rope.freq_base", "rope.dimension_count"})
    out.drop(name);
}

void read_layers_of_attention(const GgufSays& file, Json& config, const char* attends, const char* other) {
  Json types = Json::array();
  for (const bool keys : file.layers_with("attn_k.weight")) types.push_back(keys ? attends : other);
  config["layer_types"] = std::move(types);
}

void write_layers_of_attention(const Json& config, GgufSettingsWriter& out,
                               const std::function<bool(int64_t)>& attends) {
  const int64_t heads = config.value("num_key_value_heads", config.value("num_attention_heads", int64_t{0}));
  GgufValue::Integers all;
  for (int64_t i = 0; i < config.value("num_hidden_layers", int64_t{0}); ++i) all.push_back(attends(i) ? heads : 0);
  out.own("attention.head_count_kv", GgufValue::list(GgufKind::I32, std::move(all)));
}

bool attends(const Json& types, int64_t layer) {
  const Json type = layer < std::ssize(types) ? types[static_cast<size_t>(layer)] : Json();
  return type == "attention" || type == "full_attention";
}

std::vector<GgufKey> delta_net() {
  return {{"linear_conv_kernel_dim", "ssm.conv_kernel"},
          {"linear_key_head_dim", "ssm.state_size"},
          {"linear_num_key_heads", "ssm.group_count"},
          {"linear_num_value_heads", "ssm.time_step_rank"}};
}

namespace {

// Numbers of value heads, key head by key head: the first of each, the second of each, and so on.
void add_values(GgufTurn::Rows& rows, const GgufSizes& s, int64_t begin, int64_t size) {
  const int64_t keys = s.of("linear_num_key_heads", 16), shared = s.of("linear_num_value_heads", 32) / keys;
  for (int64_t i = 0; i < shared; ++i)
    for (int64_t k = 0; k < keys; ++k) add_rows(rows, begin + (k * shared + i) * size, size);
}
GgufTurn::Rows value_heads(const GgufSizes& s, int64_t) {
  GgufTurn::Rows rows;
  add_values(rows, s, 0, s.of("linear_value_head_dim", 128));
  return rows;
}
GgufTurn::Rows value_numbers(const GgufSizes& s, int64_t) {
  GgufTurn::Rows rows;
  add_values(rows, s, 0, 1);
  return rows;
}
GgufTurn::Rows keys_and_values(const GgufSizes& s, int64_t) {
  GgufTurn::Rows rows;
  const int64_t keys = 2 * s.of("linear_num_key_heads", 16) * s.of("linear_key_head_dim", 128);
  add_rows(rows, 0, keys);
  add_values(rows, s, keys, s.of("linear_value_head_dim", 128));
  return rows;
}

}  // namespace

std::vector<GgufPair> delta_names() {
  return {{"post_attention_layernorm", "post_attention_norm"},
          {"linear_attn.in_proj_qkv", "attn_qkv", {.rows = keys_and_values}},
          {"linear_attn.in_proj_z", "attn_gate", {.rows = value_heads}},
          {"linear_attn.in_proj_b", "ssm_beta", {.rows = value_numbers}},
          {"linear_attn.in_proj_a", "ssm_alpha", {.rows = value_numbers}},
          {"linear_attn.conv1d", "ssm_conv1d", {.rows = keys_and_values, .drops_one = true}},
          {"linear_attn.dt_bias", "ssm_dt.bias", {.rows = value_numbers}},
          {"linear_attn.A_log", "ssm_a", {.rows = value_numbers, .numbers = GgufTurn::Numbers::MinusExp}},
          {"linear_attn.norm", "ssm_norm"},
          {"linear_attn.out_proj", "ssm_out", {.columns = value_heads}}};
}

void read_delta_net(const GgufSays& file, Json& config) {
  config["linear_value_head_dim"] =
      file.needed("ssm.inner_size") / std::max<int64_t>(1, file.needed("ssm.time_step_rank"));
  Json types = Json::array();
  for (const bool state : file.layers_with("ssm_a")) types.push_back(state ? "linear_attention" : "full_attention");
  config["layer_types"] = std::move(types);
  if (std::vector<int64_t> sections = file.integers("rope.dimension_sections"); sections.size() > 2) {
    sections.resize(3);
    config["rope_scaling"] = {{"rope_type", "default"}, {"mrope_section", sections}, {"mrope_interleaved", true}};
  }
}

void write_delta_net(const Json& config, GgufSettingsWriter& out) {
  out.whole("ssm.inner_size",
            config.value("linear_num_value_heads", int64_t{32}) * config.value("linear_value_head_dim", int64_t{128}));
  const int64_t every = config.value("full_attention_interval", int64_t{4});
  const Json types = config.value("layer_types", Json::array());
  std::vector<bool> keeps_state;
  for (int64_t i = 0; i < config.value("num_hidden_layers", int64_t{0}); ++i)
    keeps_state.push_back(types.empty() ? (i + 1) % every != 0 : !attends(types, i));
  out.flags("attention.recurrent_layers", keeps_state);
  out.whole("full_attention_interval", every);
}

void read_windows_of_layers(const GgufSays& file, Json& config) {
  const std::vector<int64_t> slides = file.integers(kWindowsOfLayers);
  if (std::ssize(slides) != file.needed("block_count")) return;
  const auto layers = std::min<int64_t>(std::ssize(slides), config["num_hidden_layers"].get<int64_t>());
  config["layer_types"] = layer_types(layers, [&](int64_t i) { return slides[static_cast<size_t>(i)] != 0; });
}

void write_windows_of_layers(const std::vector<int64_t>& windows, GgufSettingsWriter& out) {
  std::vector<bool> slides;
  for (const int64_t window : windows) slides.push_back(window > 0);
  out.flags(kWindowsOfLayers, slides);
}

void read_turns_of_layers(const GgufSays& file, Json& config) {
  const auto head = config["head_dim"].get<double>();
  const int64_t turned = file.integer("rope.dimension_count").value_or(config["head_dim"].get<int64_t>());
  const auto of = [&](double theta, int64_t dims, Json scaling) {
    if (scaling.is_null()) scaling = {{"rope_type", "default"}};
    scaling["rope_theta"] = theta, scaling["partial_rotary_factor"] = static_cast<double>(dims) / head;
    return scaling;
  };
  const auto theta = config["rope_theta"].get<double>();
  config["rope_parameters"] = {
      {"full_attention", of(theta, turned, config.value("rope_scaling", Json()))},
      {"sliding_attention", of(file.number("rope.freq_base_swa").value_or(theta),
                               file.integer("rope.dimension_count_swa").value_or(turned), Json())}};
  for (const char* key : {"rope_theta", "rope_scaling", "partial_rotary_factor"}) config.erase(key);
}

std::vector<GgufPair> index_names() {
  return {{"self_attn.indexer.k_norm", "indexer.k_norm"},
          {"self_attn.indexer.weights_proj", "indexer.proj"},
          {"self_attn.indexer.wk", "indexer.attn_k"},
          {"self_attn.indexer.wq_b", "indexer.attn_q_b"}};
}

std::vector<GgufKey> index_keys() {
  return {{"index_n_heads", "attention.indexer.head_count"},
          {"index_head_dim", "attention.indexer.key_length"},
          {"index_topk", "attention.indexer.top_k"}};
}

}  // namespace apus::words
