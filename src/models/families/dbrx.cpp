// SPDX-License-Identifier: Apache-2.0
// DBRX: mixtures of few experts whose matrices stand one behind the other in a tensor each; queries, keys and values
// are one matrix and are bounded; norms without biases.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::dbrx {

namespace {
// An object of the file, or an empty one.
Json part(const Config& c, const char* key) {
  const Json* found = c.find(key);
  require(!found || found->is_object(), Fault::Model, "config.json: '", key, "' should be an object");
  return found ? *found : Json::object();
}

// What the model's attention says of heads and angles, under the usual words.
Json usual_words(const Config& c, const Config& attention) {
  Json words = in_usual_words(c, {{"d_model", "hidden_size"},
                                  {"n_heads", "num_attention_heads"},
                                  {"n_layers", "num_hidden_layers"},
                                  {"max_seq_len", "max_position_embeddings"}});
  words["hidden_act"] = "silu";
  if (!c.find("num_key_value_heads") && attention.find("kv_n_heads"))
    words["num_key_value_heads"] = attention.integer("kv_n_heads");
  const bool said = c.find("rope_parameters") || c.find("rope_scaling") || c.find("rope_theta");
  if (!said && attention.find("rope_theta")) words["rope_theta"] = attention.number("rope_theta", 10000);
  return words;
}

MixtureSpec read_mixture(const Config& ffn) {
  const Json act = part(ffn, "ffn_act_fn");
  const std::string name = Config(act).text("name", "silu");
  require(name == "silu", Fault::Model, "config.json: ffn_act_fn '", name,
          "' is not supported in this family, only silu");
  const bool sums = ffn.json().contains("moe_normalize_expert_weights");  // null: they are not made to sum to one
  const double power = sums ? ffn.number("moe_normalize_expert_weights", 0) : 1;
  require(power == 0 || power == 1, Fault::Model, "config.json: moe_normalize_expert_weights ", power,
          " is not supported, only 1 and null");
  return {.experts = ffn.integer("moe_num_experts", 4),
          .per_token = ffn.integer("moe_top_k", 1),
          .ffn = ffn.integer("ffn_hidden_size", 3584),
          .router = {.normalise = power == 1},
          .names = {.block = "ffn",
                    .router = "router.layer",
                    .stacked_gate_up = "experts.mlp.w1",
                    .stacked_down = "experts.mlp.w2",
                    .turned = true,
                    .stacked_up = "experts.mlp.v1"}};
}

DecoderSpec read(const Config& c) {
  const Json attn = part(c, "attn_config"), ffn = part(c, "ffn_config");
  const Config attention(attn);
  const Json words = usual_words(c, attention);
  DecoderSpec spec = read_decoder(Config(words), {.kv_heads = 1, .positions = 2048, .ffn = 3584});
  spec.norm = {.kind = NormKind::Mean, .eps = 1e-5};
  spec.backbone = "transformer", spec.embed_name = "wte", spec.layers_name = "blocks", spec.final_norm = "norm_f";
  spec.attention_name = "norm_attn_norm.attn";
  spec.norms = {.before_attention = "norm_attn_norm.norm_1", .before_feed_forward = "norm_attn_norm.norm_2"};
  spec.attention = {
      .fused = Fused::Blocks, .fused_name = "Wqkv", .out_name = "out_proj", .clip = attention.number("clip_qkv", 0)};
  require(spec.attention.clip >= 0, Fault::Model, "config.json: clip_qkv must be above 0, or null for none");
  use_experts(c, spec, read_mixture(Config(ffn)), [](int64_t) { return true; });
  return spec;
}

Json says() {
  return {{"attn_config", {{"clip_qkv", 8}, {"kv_n_heads", 8}, {"rope_theta", 5e5}}},
          {"ffn_config", {{"ffn_hidden_size", 10752}, {"moe_num_experts", 16}, {"moe_top_k", 4}}}};
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"dbrx", 6144, 40, 48, 8, 0, 10752, 100352, 32768, 5e5, false},
};

const RegisterFamily dbrx(
    "dbrx", {.title = "DBRX", .architecture = "DbrxForCausalLM", .read = read, .says = says(), .presets = presets});
}  // namespace

}  // namespace apus::families::dbrx
