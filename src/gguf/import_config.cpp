// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "gguf/import.h"
#include "gguf/import_tower.h"

namespace apus {

namespace {

// What most numbers are stored as, if that can be computed with.
const char* dtype_of(const GgufHeader& header) {
  const GgufTensor* largest = nullptr;
  for (const GgufTensor& tensor : header.tensors)
    if (!largest || tensor.bytes > largest->bytes) largest = &tensor;
  if (largest && largest->type == GgmlType::F32) return "float32";
  return largest && largest->type == GgmlType::F16 ? "float16" : "bfloat16";
}

Json yarn(const GgufSays& s, double factor) {
  Json out = {{"rope_type", "yarn"}, {"factor", factor}};
  if (const auto original = s.integer("rope.scaling.original_context_length"))
    out["original_max_position_embeddings"] = *original;
  for (const auto& [key, name] :
       {std::pair{"beta_fast", "rope.scaling.yarn_beta_fast"}, {"beta_slow", "rope.scaling.yarn_beta_slow"}})
    if (const auto value = s.number(name)) out[key] = *value;
  const double attention =
      s.number("rope.scaling.yarn_attn_factor").value_or(s.number("rope.scaling.attn_factor").value_or(1));
  if (attention != 1) out["attention_factor"] = attention * (0.1 * std::log(factor) + 1);
  return out;
}

Json rope_scaling(const GgufSays& s, double theta) {
  const GgufHeader& header = s.header();
  if (const auto& shorter = header.factors(kShortFactors), &longer = header.factors(kLongFactors); !longer.empty()) {
    require(shorter.size() == longer.size(), Fault::Model, header.where, ": ", kShortFactors, " has ", shorter.size(),
            " numbers and ", kLongFactors, " ", longer.size());
    Json out = {{"rope_type", "longrope"},
                {"short_factor", std::vector<double>(shorter.begin(), shorter.end())},
                {"long_factor", std::vector<double>(longer.begin(), longer.end())}};
    if (const auto attention = s.number("rope.scaling.attn_factor")) out["attention_factor"] = *attention;
    return out;
  }
  if (const auto& factors = header.factors(kRopeFrequencies); !factors.empty())
    return scaling_of_factors(factors, theta, s.needed("context_length"));
  const std::string type = s.text("rope.scaling.type");
  const double factor = s.number("rope.scaling.factor").value_or(1);
  if (type.empty() || type == "none" || factor == 1) return Json();
  if (type == "linear") return {{"rope_type", "linear"}, {"factor", factor}};
  if (type == "yarn") return yarn(s, factor);
  fail(Fault::Model, header.where, ": the scaling '", type,
       "' of positions is not read; linear, yarn and llama3's are");
}

// A width that older files leave out, by the shape of a matrix in any layer.
std::optional<int64_t> width_of_experts(const GgufSays& s, const std::string& file) {
  const bool each = file == "expert_feed_forward_length", shared = file == "expert_shared_feed_forward_length";
  for (const GgufTensor& t : s.header().tensors)
    if ((each && t.shape.size() == 3 && t.name.ends_with(".ffn_up_exps.weight")) ||
        (shared && t.shape.size() == 2 && t.name.ends_with(".ffn_up_shexp.weight")))
      return t.shape[t.shape.size() - 2];
  return std::nullopt;
}

Json whole(const GgufSays& s, const std::string& file) {
  auto found = s.integer(file.c_str());
  if (!found) found = width_of_experts(s, file);
  return found ? Json(*found) : Json();
}

bool knows(const GgufForm& form, const char* file) {
  return std::any_of(form.keys.begin(), form.keys.end(), [&](const GgufKey& key) { return key.file == file; });
}

void add_ids(Json& config, const GgufHeader& header) {
  for (const auto& [key, name] : {std::pair{"bos_token_id", "tokenizer.ggml.bos_token_id"},
                                  {"eos_token_id", "tokenizer.ggml.eos_token_id"},
                                  {"pad_token_id", "tokenizer.ggml.padding_token_id"}})
    if (const auto id = header.integer(name)) config[key] = *id;
}

// The context before scaling that llama3's rule needs to give these factors, with its usual borders of 1 and 4 turns.
Json llama3_scaling(const std::vector<float>& factors, double theta) {
  constexpr double kLow = 1, kHigh = 4;
  const double factor = shortest_f32(*std::max_element(factors.begin(), factors.end()));
  const auto wavelength = [&](size_t i) {
    return 2 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / static_cast<double>(factors.size()));
  };
  double original = 0;
  for (size_t i = 0; i < factors.size() && original == 0; ++i)
    if (factors[i] > 1 && factors[i] < factor) {
      const double blend = (1 / static_cast<double>(factors[i]) - 1 / factor) / (1 - 1 / factor);
      original = std::round(wavelength(i) * (kLow + blend * (kHigh - kLow)));
    }
  if (original <= 0) return Json();
  for (size_t i = 0; i < factors.size(); ++i) {
    const double blend = std::clamp((original / wavelength(i) - kLow) / (kHigh - kLow), 0.0, 1.0),
                 expected = 1 / ((1 - blend) / factor + blend);
    if (std::fabs(expected - factors[i]) > 1e-4 * expected) return Json();
  }
  return {{"rope_type", "llama3"},
          {"factor", factor},
          {"low_freq_factor", kLow},
          {"high_freq_factor", kHigh},
          {"original_max_position_embeddings", static_cast<int64_t>(original)}};
}

}  // namespace

void take_key(Json& config, const GgufSays& s, const GgufKey& key) {
  const char* file = key.file.c_str();
  Json value;
  if (key.kind == GgufKey::Whole)
    value = whole(s, key.file);
  else if (key.kind == GgufKey::Number)
    value = s.number(file) ? Json(*s.number(file)) : Json();
  else if (key.kind == GgufKey::Flag)
    value = s.flag(file) ? Json(*s.flag(file)) : Json();
  else if (key.kind == GgufKey::Wholes)
    value = s.integers(file).empty() ? Json() : Json(s.integers(file));
  else
    value = s.numbers(file).empty() ? Json() : Json(s.numbers(file));
  if (!value.is_null()) config[key.config] = std::move(value);
}

Json scaling_of_factors(const std::vector<float>& factors, double theta, int64_t positions) {
  if (std::all_of(factors.begin(), factors.end(), [](float f) { return f == 1; })) return Json();
  if (Json usual = llama3_scaling(factors, theta); !usual.is_null()) return usual;
  const std::vector<double> exact(factors.begin(), factors.end());
  return {{"rope_type", "longrope"}, {"short_factor", exact}, {"long_factor", exact},
          {"attention_factor", 1.0}, {"factor", 1.0},         {"original_max_position_embeddings", positions}};
}

Json config_of_gguf(const GgufHeader& header, const GgufFamily& family) {
  const GgufForm& form = family.form;
  const GgufSays s(header, form.architecture);
  const GgufTensor* table = s.tensor("token_embd.weight");
  require(table && table->shape.size() == 2, Fault::Model, header.where,
          ": there is no table token_embd.weight: this is no language model");
  require(s.integer("expert_count").value_or(0) == 0 || knows(form, "expert_count"), Fault::Model, header.where,
          ": the architecture '", form.architecture, "' with experts is not read");
  const double theta = s.number("rope.freq_base").value_or(10000);
  const int64_t hidden = s.needed("embedding_length"),
                heads = s.integer("ssm.state_size")
                            ? std::max<int64_t>(1, s.integer("attention.head_count").value_or(0))
                            : s.needed("attention.head_count");
  require(heads > 0, Fault::Model, header.where, ": '", s.key("attention.head_count"), "' must be above 0");
  const int64_t head = s.integer("attention.key_length").value_or(hidden / heads),
                turned = s.integer("rope.dimension_count").value_or(head);
  require(turned == head || form.read || (form.turns_in_part && turned > 0 && turned < head), Fault::Model,
          header.where, ": heads of the architecture '", form.architecture, "' that turn in part are not read");
  require(s.integer("attention.value_length").value_or(head) == head || form.read, Fault::Model, header.where,
          ": heads of the architecture '", form.architecture, "' whose keys and values differ in size are not read");
  Json config = {{"architectures", {family.class_name}},
                 {"model_type", family.model_type},
                 {"vocab_size", table->shape[0]},
                 {"hidden_size", hidden},
                 {"num_hidden_layers", s.needed("block_count") - s.integer("nextn_predict_layers").value_or(0)},
                 {"num_attention_heads", heads},
                 {"num_key_value_heads", s.integer("attention.head_count_kv").value_or(heads)},
                 {"head_dim", head},
                 {"hidden_act", "silu"},
                 {"max_position_embeddings", s.needed("context_length")},
                 {form.eps.config, s.number(form.eps.file.c_str()).value_or(1e-6)},
                 {"rope_theta", theta},
                 {"tie_word_embeddings", s.tensor("output.weight") == nullptr},
                 {"attention_bias", s.tensor("blk.0.attn_q.bias") != nullptr},
                 {"mlp_bias", s.tensor("blk.0.ffn_down.bias") != nullptr},
                 {"torch_dtype", dtype_of(header)}};
  if (const auto ffn = s.integer("feed_forward_length"))
    config["intermediate_size"] = *ffn;
  else if (const auto of_expert = s.integer("expert_feed_forward_length"))
    config["intermediate_size"] = *of_expert;
  if (form.turns_in_part) config["partial_rotary_factor"] = static_cast<double>(turned) / static_cast<double>(head);
  config.update(form.says);
  for (const GgufKey& key : form.keys) take_key(config, s, key);
  if (Json scaling = rope_scaling(s, theta); !scaling.is_null()) config["rope_scaling"] = std::move(scaling);
  add_ids(config, header);
  if (form.read) form.read(s, config);
  return config;
}

Json generation_config_of_gguf(const GgufHeader& header) {
  Json out = Json::object();
  std::vector<int64_t> ends;
  for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"})
    if (const auto id = header.integer(std::string("tokenizer.ggml.") + name);
        id && !std::count(ends.begin(), ends.end(), *id))
      ends.push_back(*id);
  if (!ends.empty()) out["eos_token_id"] = ends;
  for (const auto& [key, name] :
       {std::pair{"bos_token_id", "tokenizer.ggml.bos_token_id"}, {"pad_token_id", "tokenizer.ggml.padding_token_id"}})
    if (const auto id = header.integer(name)) out[key] = *id;
  return out;
}

}  // namespace apus
