// SPDX-License-Identifier: Apache-2.0
#include "models/spec/presets.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/nearest.h"
#include "base/registry.h"
#include "models/spec/family.h"

namespace apus {

namespace {

void add_experts(const MixtureSpec& mixture, Json& c) {
  c["num_experts"] = mixture.experts;
  c["num_experts_per_tok"] = mixture.per_token;
  c["moe_intermediate_size"] = mixture.ffn;
  c["decoder_sparse_step"] = 1;
  c["mlp_only_layers"] = Json::array();
  c["norm_topk_prob"] = mixture.router.normalise;
  c["router_aux_loss_coef"] = 0.001;
  c["output_router_logits"] = false;
  if (mixture.shared_ffn > 0) c["shared_expert_intermediate_size"] = mixture.shared_ffn;
}

Json config_of(const std::string& type, const Family& family, const Preset& p) {
  Json c = {{"architectures", {family.architecture}},
            {"model_type", type},
            {"hidden_size", p.hidden},
            {"num_hidden_layers", p.layers},
            {"num_attention_heads", p.heads},
            {"num_key_value_heads", p.kv_heads},
            {"head_dim", p.head_dim},
            {"intermediate_size", p.ffn},
            {"vocab_size", p.vocab},
            {"max_position_embeddings", p.positions},
            {"rope_theta", p.theta},
            {"rms_norm_eps", 1e-6},
            {"hidden_act", "silu"},
            {"attention_dropout", 0.0},
            {"initializer_range", 0.02},
            {"tie_word_embeddings", p.tied},
            {"use_cache", true},
            {"torch_dtype", "bfloat16"}};
  if (p.head_dim == 0) c.erase("head_dim");
  // A text part that is a model of its own.
  const char* text = "text_config";
  for (const char* other : {"llm_config", "language_config"})
    if (p.says.contains(other)) text = other;
  const bool nested = p.says.contains(text);
  if (nested) {
    c = {{text, std::move(c)},
         {"torch_dtype", "bfloat16"},
         {"model_type", type},
         {"architectures", {family.architecture}}};
  }
  c.update(family.says, nested);
  c.update(p.says, nested);
  if (p.mixture.experts > 0) add_experts(p.mixture, c);
  return c;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& [type, family] : Registry<Family>::of().all())
    for (const Preset& preset : family.presets) names.push_back(preset.name);
  return names;
}

Json preset_config(const std::string& name) {
  for (const auto& [type, family] : Registry<Family>::of().all())
    for (const Preset& preset : family.presets)
      if (name == preset.name) return config_of(type, family, preset);
  const auto near = nearest(name, preset_names());
  fail(Fault::Usage, "no preset is called '", name, "'", near.empty() ? "" : "; nearest: " + join(near),
       "; all: ", join(preset_names()));
}

}  // namespace apus
