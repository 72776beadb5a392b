// SPDX-License-Identifier: Apache-2.0
// MiniCPM3: latent attention with scaled embeddings, branches and logits.
#include <algorithm>
#include <cmath>

#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::minicpm3 {

namespace {
DecoderSpec read(const Config& c) {
  Json all = c.json();
  const auto unsaid = [&](const char* key, int64_t value) {
    if (!all.contains(key)) all[key] = value;
  };
  unsaid("kv_lora_rank", 256), unsaid("q_lora_rank", 768);
  unsaid("qk_nope_head_dim", 64), unsaid("qk_rope_head_dim", 32);
  const int64_t hidden = c.integer("hidden_size"), heads = c.integer("num_attention_heads");
  if (!c.find("v_head_dim")) all["v_head_dim"] = hidden / std::max<int64_t>(heads, 1);
  all["head_dim"] = all["qk_rope_head_dim"], all["num_key_value_heads"] = heads;
  const Config full(all);
  DecoderSpec spec = read_decoder(full, {.mlp_bias = true, .tied = true, .eps = 1e-5});
  use_latent_attention(full, spec, false);
  const bool deep = c.json().contains("scale_depth") && !c.find("scale_depth");  // null: as it is
  const bool wide = c.json().contains("dim_model_base") && !c.find("dim_model_base");
  if (!deep) spec.branch_scale = c.number("scale_depth", 1.4) / std::sqrt(static_cast<double>(spec.shape.layers));
  if (!wide) spec.logit_scale = c.number("dim_model_base", 256) / static_cast<double>(hidden);
  spec.embedding_scale = c.number("scale_emb", 12), spec.embedding_scale_rounded = true;
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"minicpm3-4b", 2560, 62, 40, 40, 0, 6400, 73448, 32768, 1e4, true},
};

// How it stands in GGUF files.
// Its heads are said as those of plain attention.
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  out.whole("attention.head_count_kv", config.value("num_attention_heads", int64_t{0}));
  out.whole("attention.key_length",
            config.value("qk_nope_head_dim", int64_t{64}) + config.value("qk_rope_head_dim", int64_t{32}));
  for (const char* name : {"attention.value_length", "attention.key_length_mla", "attention.value_length_mla"})
    out.drop(name);
}

const GgufForm gguf = {.architecture = "minicpm3",
                       .names = {{"self_attn.kv_b_proj", "attn_kv_b"}},
                       .says = {{"scale_emb", 12}, {"scale_depth", 1.4}, {"dim_model_base", 256}},
                       .read = words::read_latent,
                       .write = write_gguf,
                       .two_factor_sets = true};

const RegisterFamily minicpm3("minicpm3", {.title = "MiniCPM3",
                                           .architecture = "MiniCPM3ForCausalLM",
                                           .read = read,
                                           .says = {{"q_lora_rank", 768},
                                                    {"kv_lora_rank", 256},
                                                    {"qk_nope_head_dim", 64},
                                                    {"qk_rope_head_dim", 32},
                                                    {"scale_emb", 12},
                                                    {"scale_depth", 1.4},
                                                    {"dim_model_base", 256},
                                                    {"rms_norm_eps", 1e-5}},
                                           .presets = presets,
                                           .gguf = gguf});
}  // namespace

}  // namespace apus::families::minicpm3
