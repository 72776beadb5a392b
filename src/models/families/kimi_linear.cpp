// SPDX-License-Identifier: Apache-2.0
// Kimi Linear: delta attention whose keys fade number by number, and latent attention in a few layers, which is not
// told positions; experts as DeepSeek-V3 has them.
#include <algorithm>

#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus::families::kimi_linear {

namespace {
DecoderSpec read(const Config& c) {
  Json json = c.json();
  const auto renamed = [&](const char* usual, const char* own) {
    if (!json.contains(usual) && c.find(own)) json[usual] = json[own];
  };
  renamed("max_position_embeddings", "model_max_length"), renamed("norm_topk_prob", "moe_renormalize");
  renamed("n_group", "num_expert_group"), renamed("num_experts_per_tok", "num_experts_per_token");
  renamed("n_shared_experts", "num_shared_experts"), renamed("num_experts", "num_local_experts");
  json["head_dim"] = c.integer("qk_rope_head_dim", 64);
  if (!json.contains("q_lora_rank")) json["q_lora_rank"] = nullptr;
  const Config own(json);
  DecoderSpec spec = read_decoder(own, {.kv_heads = 32, .positions = 1048576, .ffn = 9216, .eps = 1e-5});
  use_latent_attention(own, spec, false);
  turn_only(spec, [](size_t) { return false; });
  const int64_t width = c.integer("moe_intermediate_size", 1024);
  use_experts(own, spec,
              {.experts = own.integer("num_experts", 256),
               .per_token = own.integer("num_experts_per_tok", 8),
               .ffn = width,
               .shared_ffn = width * own.integer("n_shared_experts", 1),
               .router = read_sigmoid_router(own, 2.446),
               .names = {.block = "block_sparse_moe",
                         .correction = "gate.e_score_correction_bias",
                         .gate = "w1",
                         .up = "w3",
                         .down = "w2",
                         .shared = "shared_experts",
                         .shared_is_gated = false}},
              sparse_layers(own, spec.shape.layers, 1));
  const Json* said = c.find("linear_attn_config");
  const Json none = Json::object();
  const Config linear(said ? *said : none);
  const std::vector<int64_t> full = linear.integers("full_attn_layers");  // counted from one
  use_states(own, spec,
             KimiDeltaForm{.heads = linear.integer("num_heads", c.integer("linear_num_heads", 32)),
                           .head_dim = linear.integer("head_dim", c.integer("linear_head_dim", 128)),
                           .taps = linear.integer("short_conv_kernel_size", c.integer("linear_conv_kernel_dim", 4))},
             read_layer_types(own, spec.shape.layers, [&](int64_t layer) {
               const bool attends = said && !full.empty() ? std::find(full.begin(), full.end(), layer + 1) != full.end()
                                                          : layer > 0 && layer % 4 == 0;
               return attends ? Keeps::Tokens : Keeps::State;
             }));
  // transformers gives dense layers the mixtures' name.
  DiskForm alike;
  for (int64_t i = 0; i < spec.shape.layers; ++i)
    if (std::holds_alternative<DenseSpec>(spec.feed_forward[static_cast<size_t>(i)]))
      alike.renames.push_back({str("model.layers.", i, ".mlp."), str("model.layers.", i, ".block_sparse_moe.")});
  spec.forms = {{}, std::move(alike)};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"kimi-linear-48b-a3b", 2304, 27, 32, 32, 0, 9216, 163840, 1048576, 1e4, false},
};

// How it stands in GGUF files.
void read_gguf(const GgufSays& file, Json& config) {
  words::read_latent(file, config);
  const int64_t head = file.needed("kda.head_dim");
  Json full = Json::array(), states = Json::array();
  int64_t heads = config["num_attention_heads"];
  const auto attend = file.layers_with("attn_kv_a_mqa.weight");
  for (size_t i = 0; i < attend.size(); ++i) {
    (attend[i] ? full : states).push_back(i + 1);
    if (const GgufTensor* step = file.tensor(str("blk.", i, ".ssm_dt.bias"))) heads = step->numel() / head;
  }
  config["linear_attn_config"] = {{"full_attn_layers", full},
                                  {"kda_layers", states},
                                  {"head_dim", head},
                                  {"num_heads", heads},
                                  {"short_conv_kernel_size", file.needed("ssm.conv_kernel")}};
}
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  const DecoderSpec spec = read(Config(config));
  const auto& delta = std::get<KimiDeltaForm>(*spec.state);
  GgufValue::Integers heads;
  for (int64_t i = 0; i < spec.shape.layers; ++i) heads.push_back(spec.shape.keeps_in(i) == Keeps::Tokens ? 1 : 0);
  out.own("attention.head_count_kv", GgufValue::list(GgufKind::I32, std::move(heads)));
  out.whole("ssm.conv_kernel", delta.taps);
  out.whole("kda.head_dim", delta.head_dim);
  out.whole("vocab_size", spec.shape.vocab);
  for (const char* name : {"attention.value_length", "rope.freq_base"}) out.drop(name);
}

GgufForm gguf() {
  const std::string block = "block_sparse_moe";
  constexpr decltype(GgufTurn::ones_first) kTaps{3, 4}, kRates{4, 4};
  return {.architecture = "kimi-linear",
          .names = words::both(
              words::both(words::latent_names(),
                          words::both(words::shared_experts(block + ".shared_experts"), words::mixtral_experts(block))),
              {{block + ".gate.e_score_correction_bias", "exp_probs_b.bias"},
               {"mlp.gate_proj", "ffn_gate"},
               {"mlp.up_proj", "ffn_up"},
               {"mlp.down_proj", "ffn_down"},
               {block + ".gate_proj", "ffn_gate"},
               {block + ".up_proj", "ffn_up"},
               {block + ".down_proj", "ffn_down"},
               {"self_attn.q_conv1d", "ssm_conv1d_q", {.ones_first = kTaps}},
               {"self_attn.k_conv1d", "ssm_conv1d_k", {.ones_first = kTaps}},
               {"self_attn.v_conv1d", "ssm_conv1d_v", {.ones_first = kTaps}},
               {"self_attn.A_log", "ssm_a", {.numbers = GgufTurn::Numbers::MinusExp, .ones_first = kRates}},
               {"self_attn.dt_bias", "ssm_dt.bias"},
               {"self_attn.f_a_proj", "ssm_f_a"},
               {"self_attn.f_b_proj", "ssm_f_b"},
               {"self_attn.g_a_proj", "ssm_g_a"},
               {"self_attn.g_b_proj", "ssm_g_b"},
               {"self_attn.b_proj", "ssm_beta"},
               {"self_attn.o_norm", "ssm_norm"}}),
          .keys = words::both(words::experts("num_experts", "num_experts_per_token"),
                              {{"num_shared_experts", "expert_shared_count"},
                               {"first_k_dense_replace", "leading_dense_block_count"},
                               {"routed_scaling_factor", "expert_weights_scale", GgufKey::Number}}),
          .says = {{"moe_renormalize", true}},
          .read = read_gguf,
          .write = write_gguf};
}

const RegisterFamily kimi_linear("kimi_linear", {.title = "Kimi Linear",
                                                 .architecture = "KimiLinearForCausalLM",
                                                 .read = read,
                                                 .says = {{"q_lora_rank", nullptr},
                                                          {"kv_lora_rank", 512},
                                                          {"qk_nope_head_dim", 128},
                                                          {"qk_rope_head_dim", 64},
                                                          {"v_head_dim", 128},
                                                          {"num_experts", 256},
                                                          {"num_experts_per_tok", 8},
                                                          {"num_shared_experts", 1},
                                                          {"moe_intermediate_size", 1024},
                                                          {"first_k_dense_replace", 1},
                                                          {"routed_scaling_factor", 2.446},
                                                          {"linear_num_heads", 32},
                                                          {"linear_head_dim", 128},
                                                          {"linear_conv_kernel_dim", 4},
                                                          {"rms_norm_eps", 1e-5}},
                                                 .presets = presets,
                                                 .gguf = gguf()});
}  // namespace

}  // namespace apus::families::kimi_linear
