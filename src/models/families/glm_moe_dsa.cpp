// SPDX-License-Identifier: Apache-2.0
// GLM-5: DeepSeek-V3.2 at other sizes; its index turns neighbours too.
#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/guess_form.h"
#include "models/spec/read_decoder.h"

namespace apus::families::glm_moe_dsa {

namespace {
DecoderSpec read(const Config& c) {
  const int64_t kTurned = 64;
  DecoderSpec spec = read_decoder(c, {.kv_heads = 64,
                                      .positions = 202752,
                                      .ffn = 12288,
                                      .head_dim = c.integer("qk_rope_head_dim", kTurned),
                                      .eps = 1e-5});
  use_latent_attention(c, spec, /*neighbours=*/true,
                       {.query_rank = 2048, .rank = 512, .still = 192, .turned = kTurned, .value = 256});
  for (const std::string& type : c.texts("indexer_types"))
    require(type == "full", Fault::Model, "config.json: layers that share another one's choice (indexer_types '", type,
            "') are not supported");
  require(
      c.integer("index_topk_freq", 1) == 1 && !c.find("index_topk_pattern"), Fault::Model,
      "config.json: layers that share another one's choice (index_topk_freq, index_topk_pattern) are not supported");
  use_index(c, spec, 32, /*neighbours=*/true);
  use_experts(
      c, spec,
      read_routed_experts(c, {.experts = c.integer("num_experts", 256), .per_token = 8, .ffn = 2048, .scale = 2.5}),
      sparse_layers(c, spec.shape.layers, 3));
  use_layers_ahead(c, spec);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"glm5", 6144, 78, 64, 64, 0, 12288, 154880, 202752, 1e6, false},
};

// How it stands in GGUF files, which say of each layer whether it chooses itself.
void read_gguf(const GgufSays& file, Json& config) {
  words::read_latent(file, config);
  for (const int64_t own : file.integers("attention.indexer.types"))
    config["indexer_types"].push_back(own != 0 ? "full" : "shared");
}
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  out.whole("vocab_size", config.value("vocab_size", int64_t{0}));
  const auto layers = config.value("num_hidden_layers", size_t{0});
  out.flags("attention.indexer.types", std::vector<bool>(layers, true));
}

const GgufForm gguf = {
    .architecture = "glm-dsa",
    .names = words::both(words::latent_names(), words::both(words::shared_experts(), words::index_names())),
    .keys = words::both(words::routed_experts(), words::index_keys()),
    .read = read_gguf,
    .write = write_gguf};

const RegisterFamily glm_moe_dsa("glm_moe_dsa", {.title = "GLM-5",
                                                 .architecture = "GlmMoeDsaForCausalLM",
                                                 .read = read,
                                                 .says = {{"q_lora_rank", 2048},
                                                          {"kv_lora_rank", 512},
                                                          {"qk_nope_head_dim", 192},
                                                          {"qk_rope_head_dim", 64},
                                                          {"v_head_dim", 256},
                                                          {"index_n_heads", 32},
                                                          {"index_head_dim", 128},
                                                          {"index_topk", 2048},
                                                          {"n_routed_experts", 256},
                                                          {"n_shared_experts", 1},
                                                          {"num_experts_per_tok", 8},
                                                          {"moe_intermediate_size", 2048},
                                                          {"first_k_dense_replace", 3},
                                                          {"n_group", 1},
                                                          {"topk_group", 1},
                                                          {"routed_scaling_factor", 2.5},
                                                          {"norm_topk_prob", true},
                                                          {"rms_norm_eps", 1e-5}},
                                                 .presets = presets,
                                                 .gguf = gguf});
}  // namespace

}  // namespace apus::families::glm_moe_dsa
