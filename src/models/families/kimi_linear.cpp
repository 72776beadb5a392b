// SPDX-License-Identifier: Apache-2.0
// Kimi Linear: delta attention whose keys fade number by number, and latent attention in a few layers, which is not
// told positions; experts as DeepSeek-V3 has them.
#include <algorithm>

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus {

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
                                                 .presets = presets});
}  // namespace

}  // namespace apus
