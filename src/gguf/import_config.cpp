// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "gguf/import.h"

namespace apus {

namespace {

// The shortest number that is this one as f32: 1e-06 rather than 9.99999997e-07.
double shortest(double value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(value));
  double out = value;
  std::from_chars(text, end.ptr, out);
  return out;
}

class Settings {
 public:
  explicit Settings(const GgufModel& model) : model_(model), header_(model.header()) {}
  int64_t needed(const char* name) const {
    const auto found = header_.integer(model_.key(name));
    require(found.has_value(), Fault::Model, header_.where, ": '", model_.key(name), "' is missing");
    return *found;
  }
  std::optional<int64_t> integer(const char* name) const { return header_.integer(model_.key(name)); }
  std::optional<double> number(const char* name) const {
    const auto found = header_.number(model_.key(name));
    return found ? std::optional(shortest(*found)) : std::nullopt;
  }
  std::string text(const char* name) const { return header_.text(model_.key(name)); }
  const GgufHeader& header() const { return header_; }

 private:
  const GgufModel& model_;
  const GgufHeader& header_;
};

// What most numbers are stored as, if that can be computed with.
const char* dtype_of(const GgufModel& model) {
  const GgufSlice* largest = nullptr;
  for (const auto& [name, slice] : model.tensors())
    if (!largest || slice.bytes > largest->bytes) largest = &slice;
  if (largest && largest->type == GgmlType::F32) return "float32";
  return largest && largest->type == GgmlType::F16 ? "float16" : "bfloat16";
}

Json yarn(const Settings& s, double factor) {
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

Json rope_scaling(const GgufModel& model, const Settings& s, double theta) {
  if (const auto shorter = model.factors(kShortFactors), longer = model.factors(kLongFactors); !longer.empty()) {
    require(shorter.size() == longer.size(), Fault::Model, s.header().where, ": ", kShortFactors, " has ",
            shorter.size(), " numbers and ", kLongFactors, " ", longer.size());
    Json out = {{"rope_type", "longrope"},
                {"short_factor", std::vector<double>(shorter.begin(), shorter.end())},
                {"long_factor", std::vector<double>(longer.begin(), longer.end())}};
    if (const auto attention = s.number("rope.scaling.attn_factor")) out["attention_factor"] = *attention;
    return out;
  }
  if (const auto factors = model.rope_factors(); !factors.empty())
    return scaling_of_factors(factors, theta, s.needed("context_length"));
  const std::string type = s.text("rope.scaling.type");
  const double factor = s.number("rope.scaling.factor").value_or(1);
  if (type.empty() || type == "none" || factor == 1) return Json();
  if (type == "linear") return {{"rope_type", "linear"}, {"factor", factor}};
  if (type == "yarn") return yarn(s, factor);
  fail(Fault::Model, s.header().where, ": the scaling '", type,
       "' of positions is not read; linear, yarn and llama3's are");
}

void add_experts(Json& config, const GgufModel& model, const Settings& s) {
  config["num_experts"] = s.needed("expert_count");
  config[model.family().experts_per_token] = s.needed("expert_used_count");
  const GgufSlice* gate = model.find("model.layers.0.mlp.experts.0.gate_proj.weight");
  const auto said = s.integer("expert_feed_forward_length");
  require(said || gate, Fault::Model, s.header().where, ": '", model.key("expert_feed_forward_length"), "' is missing");
  config["moe_intermediate_size"] = said ? *said : gate->shape[0];
  if (!config.contains("intermediate_size")) config["intermediate_size"] = config["moe_intermediate_size"];
  const GgufSlice* shared = model.find("model.layers.0.mlp.shared_expert.gate_proj.weight");
  if (const auto size = s.integer("expert_shared_feed_forward_length"); size || shared)
    config["shared_expert_intermediate_size"] = size ? *size : shared->shape[0];
  config["norm_topk_prob"] = model.family().normalised_experts;
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = Json::array();
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
  const double factor = shortest(*std::max_element(factors.begin(), factors.end()));
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

Json scaling_of_factors(const std::vector<float>& factors, double theta, int64_t positions) {
  if (std::all_of(factors.begin(), factors.end(), [](float f) { return f == 1; })) return Json();
  if (Json usual = llama3_scaling(factors, theta); !usual.is_null()) return usual;
  const std::vector<double> exact(factors.begin(), factors.end());
  return {{"rope_type", "longrope"}, {"short_factor", exact}, {"long_factor", exact},
          {"attention_factor", 1.0}, {"factor", 1.0},         {"original_max_position_embeddings", positions}};
}

Json config_of_gguf(const GgufModel& model) {
  const Settings s(model);
  const GgufHeader& header = model.header();
  const GgufFamily& family = model.family();
  const GgufSlice* table = model.find("model.embed_tokens.weight");
  require(table && table->shape.size() == 2, Fault::Model, header.where,
          ": there is no table token_embd.weight: this is no language model");
  require(!s.integer("expert_count").value_or(0) == !family.experts, Fault::Model, header.where, ": the architecture '",
          family.architecture, "' ", family.experts ? "without" : "with", " experts is not read");
  const double theta = s.number("rope.freq_base").value_or(10000);
  const int64_t heads = s.needed("attention.head_count"), hidden = s.needed("embedding_length");
  require(heads > 0, Fault::Model, header.where, ": '", model.key("attention.head_count"), "' must be above 0");
  const int64_t head = s.integer("attention.key_length").value_or(hidden / heads),
                turned = s.integer("rope.dimension_count").value_or(head);
  require(s.integer("attention.value_length").value_or(head) == head &&
              (turned == head || (family.turns_in_part && turned > 0 && turned < head)),
          Fault::Model, header.where, ": heads of the architecture '", family.architecture,
          "' that turn in part, or whose keys and values differ in size, are not read");
  Json config = {{"architectures", {family.class_name}},
                 {"model_type", family.model_type},
                 {"vocab_size", table->shape[0]},
                 {"hidden_size", hidden},
                 {"num_hidden_layers", s.needed("block_count")},
                 {"num_attention_heads", heads},
                 {"num_key_value_heads", s.integer("attention.head_count_kv").value_or(heads)},
                 {"head_dim", head},
                 {"hidden_act", "silu"},
                 {"max_position_embeddings", s.needed("context_length")},
                 {family.eps.config, s.number(family.eps.file).value_or(1e-6)},
                 {"rope_theta", theta},
                 {"tie_word_embeddings", model.find("lm_head.weight") == nullptr},
                 {"attention_bias", model.find("model.layers.0.self_attn.q_proj.bias") != nullptr},
                 {"torch_dtype", dtype_of(model)}};
  if (const auto ffn = s.integer("feed_forward_length")) config["intermediate_size"] = *ffn;
  if (turned != head) config["partial_rotary_factor"] = static_cast<double>(turned) / static_cast<double>(head);
  for (const GgufKey& key : family.keys)
    if (const auto whole = key.whole ? s.integer(key.file) : std::nullopt)
      config[key.config] = *whole;
    else if (const auto number = key.whole ? std::nullopt : s.number(key.file))
      config[key.config] = *number;
  if (family.constants) config.update(family.constants({s.needed("block_count"), hidden, heads, head}));
  if (family.experts) add_experts(config, model, s);
  if (Json scaling = rope_scaling(model, s, theta); !scaling.is_null()) config["rope_scaling"] = std::move(scaling);
  add_ids(config, header);
  return config;
}

Json generation_config_of_gguf(const GgufModel& model) {
  const GgufHeader& header = model.header();
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
