// SPDX-License-Identifier: Apache-2.0
// Hunyuan 4: several hidden states side by side; gated latent attention with sinks, to tokens that an index chooses,
// which some layers take over from one before them; bounded experts by sigmoids with a correction.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::hy_v4 {

namespace {
// Per layer whose choice is taken: that of the nearest full layer before it; -1: its own.
std::vector<int64_t> read_index_types(const Config& c, int64_t layers) {
  const auto types = c.texts("indexer_types");
  require(types.empty() || std::ssize(types) == layers, Fault::Model, "config.json: indexer_types has ", types.size(),
          " entries, the model ", layers, " layers");
  std::vector<int64_t> taken_of;
  int64_t full = -1;
  for (int64_t i = 0; i < layers; ++i) {
    const std::string type = !types.empty()               ? types[static_cast<size_t>(i)]
                             : i == 0 || (i - 1) % 4 == 0 ? "full"
                                                          : "shared";
    require(type == "full" || (type == "shared" && full >= 0), Fault::Model, "config.json: indexer_types has '", type,
            "' at layer ", i, "; known: full, and shared behind one that is full");
    if (type == "full") full = i;
    taken_of.push_back(type == "full" ? -1 : full);
  }
  return taken_of;
}

// How the parts of streams and attention are called in files; transformers gives gates of blocks the name of
// attention's as well.
DiskForm names_in_files(bool gates_of_blocks_too) {
  DiskForm form{.renames = {{"model.hc_head.hc_", "model.hc_pre.hc_head.hc_head_"}},
                .inside = {{".attn_hc.", ".hc_pre.hc_attn_layer.hc_"},
                           {".ffn_hc.", ".hc_pre.hc_mlp_layer.hc_"},
                           {".self_attn.sinks", ".self_attn.learnable_sink_param"},
                           {".self_attn.gate_proj.", ".self_attn.linear_gate."}}};
  if (gates_of_blocks_too)
    for (const char* block : {".mlp.", ".mlp.shared_experts."})
      form.inside.push_back({str(block, "gate_proj."), str(block, "linear_gate.")});
  return form;
}

StreamsForm read_streams(const Config& c) {
  const StreamsForm form{
      .count = c.integer("hc_mult", 4), .reach = c.number("hc_magnitude", 2), .eps = c.number("hc_eps", 1e-6)};
  require(form.count > 0 && form.count <= 64, Fault::Model, "config.json: hc_mult must be above 0 and at most 64");
  return form;
}

DecoderSpec read(const Config& c) {
  for (const std::string& type : c.texts("layer_types"))
    require(type == "indexed_attention", Fault::Model, "config.json: layer type '", type,
            "' is not known in this family, only indexed_attention");
  Json words = in_usual_words(c, {{"num_local_experts", "n_routed_experts"}});
  words["head_dim"] = latent_turned(c);
  words["num_key_value_heads"] = c.integer("num_attention_heads");
  const Config usual(words);
  DecoderSpec spec = read_decoder(usual, {.positions = 262144, .ffn = 6912, .eps = 1e-5});
  use_latent_attention(usual, spec, /*neighbours=*/false,
                       {.query_rank = 1536, .rank = 512, .still = 192, .turned = 64, .value = 256});
  use_index(usual, spec, 16, /*neighbours=*/false);
  spec.latent->index.last_turn = true, spec.latent->index.eps = spec.norm.eps;
  spec.latent->taken_of = read_index_types(c, spec.shape.layers);
  spec.attention.gate_name = "gate_proj", spec.attention.sinks = true;
  spec.streams = read_streams(c);
  MixtureSpec mixture =
      read_routed_experts(usual, {.experts = 256, .per_token = 8, .ffn = 768, .shared = 1, .scale = 2.827});
  mixture.limit = c.number("swiglu_limit", 10);
  mixture.names.stacked_gate_up = "experts.gate_up_proj", mixture.names.stacked_down = "experts.down_proj";
  use_experts(usual, spec, mixture, sparse_layers(usual, spec.shape.layers, 1));
  spec.forms = {names_in_files(false), names_in_files(true)};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"hunyuan-4", 2816, 34, 32, 32, 256, 6912, 120832, 262144, 1e4, false},
};

const RegisterFamily hy_v4("hy_v4", {.title = "Hunyuan 4",
                                     .architecture = "HYV4ForCausalLM",
                                     .read = read,
                                     .says = {{"q_lora_rank", 1536},
                                              {"kv_lora_rank", 512},
                                              {"qk_nope_head_dim", 192},
                                              {"qk_rope_head_dim", 64},
                                              {"v_head_dim", 256},
                                              {"n_routed_experts", 256},
                                              {"num_experts_per_tok", 8},
                                              {"n_shared_experts", 1},
                                              {"moe_intermediate_size", 768},
                                              {"routed_scaling_factor", 2.827},
                                              {"norm_topk_prob", true},
                                              {"swiglu_limit", 10.0},
                                              {"hc_mult", 4},
                                              {"hc_magnitude", 2.0},
                                              {"rms_norm_eps", 1e-5}},
                                     .presets = presets});
}  // namespace

}  // namespace apus::families::hy_v4
