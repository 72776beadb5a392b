// SPDX-License-Identifier: Apache-2.0
#include "models/presets.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/nearest.h"

namespace apus {

namespace {

struct Preset {
  const char *name, *family;
  int64_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab, positions;
  double theta;
  bool tied;
  int64_t experts = 0, per_token = 0, expert_ffn = 0, shared_ffn = 0;
};

constexpr Preset kPresets[] = {
    // name               family      hidden layers heads kv  dim  ffn    vocab   positions theta tied
    {"tiny", "qwen2", 256, 4, 8, 4, 32, 704, 2048, 2048, 1e4, true},
    {"tiny-moe", "qwen3_moe", 128, 3, 4, 2, 32, 384, 2048, 2048, 1e4, true, 8, 2, 96},
    {"qwen2.5-0.5b", "qwen2", 896, 24, 14, 2, 64, 4864, 151936, 32768, 1e6, true},
    {"qwen2.5-1.5b", "qwen2", 1536, 28, 12, 2, 128, 8960, 151936, 32768, 1e6, true},
    {"qwen2.5-3b", "qwen2", 2048, 36, 16, 2, 128, 11008, 151936, 32768, 1e6, true},
    {"qwen2.5-7b", "qwen2", 3584, 28, 28, 4, 128, 18944, 152064, 32768, 1e6, false},
    {"qwen2.5-14b", "qwen2", 5120, 48, 40, 8, 128, 13824, 152064, 32768, 1e6, false},
    {"qwen2.5-32b", "qwen2", 5120, 64, 40, 8, 128, 27648, 152064, 32768, 1e6, false},
    {"qwen2.5-72b", "qwen2", 8192, 80, 64, 8, 128, 29568, 152064, 32768, 1e6, false},
    {"qwen3-0.6b", "qwen3", 1024, 28, 16, 8, 128, 3072, 151936, 40960, 1e6, true},
    {"qwen3-1.7b", "qwen3", 2048, 28, 16, 8, 128, 6144, 151936, 40960, 1e6, true},
    {"qwen3-4b", "qwen3", 2560, 36, 32, 8, 128, 9728, 151936, 40960, 1e6, true},
    {"qwen3-8b", "qwen3", 4096, 36, 32, 8, 128, 12288, 151936, 40960, 1e6, false},
    {"qwen3-14b", "qwen3", 5120, 40, 40, 8, 128, 17408, 151936, 40960, 1e6, false},
    {"qwen3-32b", "qwen3", 5120, 64, 64, 8, 128, 25600, 151936, 40960, 1e6, false},
    {"qwen3-30b-a3b", "qwen3_moe", 2048, 48, 32, 4, 128, 6144, 151936, 40960, 1e6, false, 128, 8, 768},
    {"qwen3-235b-a22b", "qwen3_moe", 4096, 94, 64, 4, 128, 12288, 151936, 40960, 1e6, false, 128, 8, 1536},
    {"qwen1.5-moe-a2.7b", "qwen2_moe", 2048, 24, 16, 16, 128, 5632, 151936, 8192, 1e6, false, 60, 4, 1408, 5632},
    {"llama3.2-1b", "llama", 2048, 16, 32, 8, 64, 8192, 128256, 131072, 5e5, true},
    {"llama3.2-3b", "llama", 3072, 28, 24, 8, 128, 8192, 128256, 131072, 5e5, true},
    {"llama3-8b", "llama", 4096, 32, 32, 8, 128, 14336, 128256, 8192, 5e5, false},
    {"llama3.1-8b", "llama", 4096, 32, 32, 8, 128, 14336, 128256, 131072, 5e5, false},
    {"llama3.1-70b", "llama", 8192, 80, 64, 8, 128, 28672, 128256, 131072, 5e5, false},
    {"mistral-7b", "mistral", 4096, 32, 32, 8, 128, 14336, 32768, 32768, 1e6, false},
};

const char* architecture(const std::string& family) {
  if (family == "qwen2") return "Qwen2ForCausalLM";
  if (family == "qwen3") return "Qwen3ForCausalLM";
  if (family == "qwen2_moe") return "Qwen2MoeForCausalLM";
  if (family == "qwen3_moe") return "Qwen3MoeForCausalLM";
  if (family == "mistral") return "MistralForCausalLM";
  return "LlamaForCausalLM";
}

Json config_of(const Preset& p) {
  Json c = {{"architectures", {architecture(p.family)}},
            {"model_type", p.family},
            {"hidden_size", p.hidden},
            {"num_hidden_layers", p.layers},
            {"num_attention_heads", p.heads},
            {"num_key_value_heads", p.kv_heads},
            {"head_dim", p.head_dim},
            {"intermediate_size", p.ffn},
            {"vocab_size", p.vocab},
            {"max_position_embeddings", p.positions},
            {"rope_theta", p.theta},
            {"rms_norm_eps", std::string(p.family) == "llama" || std::string(p.family) == "mistral" ? 1e-5 : 1e-6},
            {"hidden_act", "silu"},
            {"attention_dropout", 0.0},
            {"initializer_range", 0.02},
            {"tie_word_embeddings", p.tied},
            {"use_cache", true},
            {"torch_dtype", "bfloat16"}};
  if (std::string(p.family).starts_with("qwen")) c["use_sliding_window"] = false;
  if (std::string(p.family) == "qwen2") c.erase("head_dim");  // there it is always hidden / heads
  if (std::string(p.name).starts_with("llama3."))             // not Llama 3 itself
    c["rope_scaling"] = {{"rope_type", "llama3"},
                         {"factor", p.hidden <= 3072 ? 32.0 : 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 8192}};
  if (p.experts > 0) {
    c["num_experts"] = p.experts;
    c["num_experts_per_tok"] = p.per_token;
    c["moe_intermediate_size"] = p.expert_ffn;
    c["decoder_sparse_step"] = 1;
    c["mlp_only_layers"] = Json::array();
    c["norm_topk_prob"] = std::string(p.family) == "qwen3_moe";
    c["router_aux_loss_coef"] = 0.001;
    c["output_router_logits"] = false;
  }
  if (p.shared_ffn > 0) c["shared_expert_intermediate_size"] = p.shared_ffn;
  return c;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& p : kPresets) names.push_back(p.name);
  return names;
}

Json preset_config(const std::string& name) {
  for (const auto& p : kPresets)
    if (name == p.name) return config_of(p);
  const auto near = nearest(name, preset_names());
  fail(Fault::Usage, "no preset is called '", name, "'", near.empty() ? "" : "; nearest: " + join(near),
       "; all: ", join(preset_names()));
}

}  // namespace apus
