// SPDX-License-Identifier: Apache-2.0
// gpt-oss: a learnt score besides those of the keys in every head, every second layer slides, experts with biases whose
// gate and up are clamped. Experts may be MXFP4 in the file.
#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::gpt_oss {

namespace {
const Json kYarn = {{"rope_type", "yarn"}, {"factor", 32.0},    {"beta_fast", 32.0},
                    {"beta_slow", 1.0},    {"truncate", false}, {"original_max_position_embeddings", 4096}};

// With the rotary settings that a file leaves out.
Json with_yarn(const Config& c) {
  Json json = c.json();
  if (!json.contains("rope_scaling") && !c.find("rope_parameters")) json["rope_scaling"] = kYarn;
  return json;
}

DecoderSpec read(const Config& config) {
  const Json json = with_yarn(config);
  const Config c(json);
  DecoderSpec spec = read_decoder(c, {.kv_heads = 8,
                                      .positions = 131072,
                                      .ffn = 2880,
                                      .head_dim = c.json().contains("head_dim") ? 0 : 64,
                                      .eps = 1e-5,
                                      .rope = {.theta = 150000}});
  spec.attention = {.qkv_bias = true, .out_bias = true, .sinks = true};
  const int64_t kDefaultWindow = 128;
  spec.window = read_windows(c, spec.shape.layers, all_but_every(2), kDefaultWindow);
  const double clamp = c.number("swiglu_limit", 7);
  require(clamp > 0, Fault::Model, "config.json: swiglu_limit must be above 0, it is ", clamp);
  use_experts(c, spec,
              {.experts = c.integer("num_local_experts", 128),
               .per_token = c.integer("num_experts_per_tok", 4),
               .ffn = c.integer("intermediate_size", 2880),
               .clamp = clamp,
               .router = {.normalise = true},
               .names = {.router = "router",
                         .stacked_gate_up = "experts.gate_up_proj",
                         .stacked_down = "experts.down_proj",
                         .router_bias = true}},
              [](int64_t) { return true; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"gpt-oss-20b", 2880, 24, 64, 8, 64, 2880, 201088, 131072, 150000, false, {}, {{"num_local_experts", 32}}},
    {"gpt-oss-120b", 2880, 36, 64, 8, 64, 2880, 201088, 131072, 150000, false, {}, {{"num_local_experts", 128}}},
};

// How it stands in GGUF files.
// Its frequencies' borders are no whole numbers, which llama.cpp rounds.
void read_gguf(const GgufSays&, Json& config) {
  if (config.contains("rope_scaling"))
    config["rope_scaling"]["truncate"] = false;
  else
    config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", config["rope_theta"]}};
}

const GgufForm gguf = {
    .architecture = "gpt-oss",
    .names = {{"post_attention_layernorm", "post_attention_norm"},
              {"self_attn.sinks", "attn_sinks.weight"},
              {"mlp.router", "ffn_gate_inp"},
              {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight", {.rows = even_rows, .turned = true}},
              {"mlp.experts.gate_up_proj", "ffn_up_exps.weight", {.rows = odd_rows, .turned = true}},
              {"mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias", {.rows = even_rows}},
              {"mlp.experts.gate_up_proj_bias", "ffn_up_exps.bias", {.rows = odd_rows}},
              {"mlp.experts.down_proj", "ffn_down_exps.weight", {.turned = true}},
              {"mlp.experts.down_proj_bias", "ffn_down_exps.bias"}},
    .keys =
        words::both(words::experts("num_local_experts", "num_experts_per_tok", "intermediate_size"), {words::window()}),
    .says = {{"attention_bias", true}, {"swiglu_limit", 7.0}, {"sliding_window", 128}},
    .read = read_gguf};

const RegisterFamily gpt_oss("gpt_oss", {.title = "gpt-oss",
                                         .architecture = "GptOssForCausalLM",
                                         .read = read,
                                         .says = {{"attention_bias", true},
                                                  {"num_experts_per_tok", 4},
                                                  {"sliding_window", 128},
                                                  {"swiglu_limit", 7.0},
                                                  {"rope_scaling", kYarn},
                                                  {"rms_norm_eps", 1e-5}},
                                         .presets = presets,
                                         .gguf = gguf});
}  // namespace

}  // namespace apus::families::gpt_oss
