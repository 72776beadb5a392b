// SPDX-License-Identifier: Apache-2.0
// LongCat-Flash: layers of two halves, each with latent attention and a block; experts read what the first block reads
// and are added behind the second, and some of them give back what they read. Each half is a layer here.
#include <cmath>

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::longcat_flash {

namespace {
// Halves 2i and 2i + 1 stand in layer i of the file.
DiskForm halves(int64_t layers) {
  DiskForm form;
  for (int64_t half = 0; half < layers; ++half) {
    const std::string own = str("model.layers.", half, "."), disk = str("model.layers.", half / 2, ".");
    const auto in_disk = [&](const char* part, const char* there) {
      form.renames.push_back({own + part + ".", str(disk, there, ".", half % 2, ".")});
    };
    for (const char* part : {"self_attn", "input_layernorm", "post_attention_layernorm"}) in_disk(part, part);
    in_disk("mlps", "mlps");
    if (half % 2 == 0) form.renames.push_back({own + "mlp.", disk + "mlp."});
  }
  return form;
}

// What experts there are, and that they are late.
MixtureSpec read_mixture(const Config& c, int64_t ffn) {
  return {.experts = c.integer("n_routed_experts", 512),
          .per_token = c.integer("moe_topk", c.integer("num_experts_per_tok", 12)),
          .ffn = c.integer("expert_ffn_hidden_size", c.integer("moe_intermediate_size", 2048)),
          .idle = c.integer("zero_expert_num", 256),
          .router = {.scale = c.number("routed_scaling_factor", 6)},
          .names = {.router = "router.classifier", .correction = "router.e_score_correction_bias"},
          .beside = DenseSpec{.ffn = ffn},
          .late = true};
}

DecoderSpec read(const Config& file) {
  Json words = in_usual_words(file, {{"ffn_hidden_size", "intermediate_size"}});
  const int64_t layers = file.integer("num_layers", file.integer("num_hidden_layers", 56) / 2);
  require(layers > 0 && layers <= 2048, Fault::Model, "config.json: num_layers must be above 0");
  words["num_hidden_layers"] = 2 * layers, words["head_dim"] = file.integer("qk_rope_head_dim", 64);
  words.erase("num_key_value_heads");
  const Config c(words);
  require(file.text("zero_expert_type", "identity") == "identity", Fault::Model, "config.json: zero_expert_type '",
          file.text("zero_expert_type", ""), "' is not known, only identity");
  require(!file.flag("router_bias", false), Fault::Model, "config.json: router_bias is not supported");
  DecoderSpec spec = read_decoder(c, {.positions = 131072, .ffn = 12288, .eps = 1e-5, .rope = {.theta = 1e7}});
  use_latent_attention(c, spec, /*neighbours=*/true);
  LatentForm& latent = *spec.latent;
  require(latent.query_rank > 0, Fault::Model, "config.json: q_lora_rank must be above 0");
  const auto wider = [&](int64_t rank) {
    return std::sqrt(static_cast<double>(spec.shape.hidden) / static_cast<double>(rank));
  };
  if (file.flag("mla_scale_q_lora", true)) spec.attention.scale *= wider(latent.query_rank);
  if (file.flag("mla_scale_kv_lora", true)) latent.small_scale = wider(latent.rank);
  const int64_t ffn = std::get<DenseSpec>(spec.feed_forward[0]).ffn;
  use_experts(c, spec, read_mixture(c, ffn), [](int64_t half) { return half % 2 == 0; });
  spec.dense_name = "mlps";
  spec.forms = {halves(spec.shape.layers)};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"longcat-flash", 6144, 56, 64, 64, 64, 12288, 131072, 131072, 1e7, false},
};

const RegisterFamily longcat_flash("longcat_flash", {.title = "LongCat-Flash",
                                                     .architecture = "LongcatFlashForCausalLM",
                                                     .read = read,
                                                     .says = {{"num_layers", 28},
                                                              {"ffn_hidden_size", 12288},
                                                              {"expert_ffn_hidden_size", 2048},
                                                              {"n_routed_experts", 512},
                                                              {"zero_expert_num", 256},
                                                              {"moe_topk", 12},
                                                              {"routed_scaling_factor", 6.0},
                                                              {"q_lora_rank", 1536},
                                                              {"kv_lora_rank", 512},
                                                              {"qk_nope_head_dim", 128},
                                                              {"qk_rope_head_dim", 64},
                                                              {"v_head_dim", 128},
                                                              {"rms_norm_eps", 1e-5}},
                                                     .presets = presets});
}  // namespace

}  // namespace apus::families::longcat_flash
