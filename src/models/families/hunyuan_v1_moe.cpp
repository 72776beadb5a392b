// SPDX-License-Identifier: Apache-2.0
// Hunyuan with experts: Hunyuan's attention, a shared feed-forward beside the experts.
#include <algorithm>

#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::hunyuan_v1_moe {

namespace {
// A number, or one for each layer, which must be alike.
int64_t alike(const Config& c, const char* key, int64_t unsaid) {
  const Json* value = c.find(key);
  if (!value || !value->is_array()) return c.integer(key, unsaid);
  const auto each = c.integers(key);
  require(!each.empty() && std::equal(each.begin() + 1, each.end(), each.begin()), Fault::Model, "config.json: '", key,
          "' differs from layer to layer, which is not supported");
  return each[0];
}

DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 2048, .eps = 1e-5, .rope = {.alpha = true}});
  spec.attention = {.qkv_bias = c.flag("attention_bias", false),
                    .out_bias = c.flag("attention_bias", false),
                    .qk_norm = QkNorm::HeadAfterRope};
  const int64_t width = c.integer("intermediate_size");
  use_experts(c, spec,
              {.experts = alike(c, "num_experts", 1),
               .per_token = alike(c, "moe_topk", 1),
               .ffn = width,
               .shared_ffn = width,
               .router = {.normalise = true},
               .names = {.router = "gate.wg", .shared = "shared_mlp", .shared_is_gated = false}},
              [](int64_t) { return true; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"hunyuan-a13b", 4096, 32, 32, 8, 128, 3072, 128167, 32768, 1e4, true},
};

// How it stands in GGUF files.
const GgufForm gguf = {
    .architecture = "hunyuan-moe",
    .names = words::both<GgufPair>({{"self_attn.query_layernorm", "attn_q_norm"},
                                    {"self_attn.key_layernorm", "attn_k_norm"},
                                    {"mlp.gate.wg", "ffn_gate_inp"}},
                                   words::shared_experts("mlp.shared_mlp")),
    .keys = words::both(words::experts("num_experts", "moe_topk"), {{"num_shared_expert", "expert_shared_count"}})};

const RegisterFamily hunyuan_v1_moe("hunyuan_v1_moe",
                                    {.title = "Hunyuan with experts",
                                     .architecture = "HunYuanMoEV1ForCausalLM",
                                     .read = read,
                                     .says = {{"rms_norm_eps", 1e-5}, {"num_experts", 64}, {"moe_topk", 8}},
                                     .presets = presets,
                                     .gguf = gguf});
}  // namespace

}  // namespace apus::families::hunyuan_v1_moe
