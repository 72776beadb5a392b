// SPDX-License-Identifier: Apache-2.0
// Llama 4: its text part (llama4_text) behind a tower that looks at square tiles, and turns by columns and lines.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::llama4 {

namespace {
VisionSpec read_vision_model(const Config& v) {
  VisionSpec s;
  s.width = v.integer("hidden_size", 768), s.layers = v.integer("num_hidden_layers", 34);
  s.heads = v.integer("num_attention_heads", 16), s.ffn = v.integer("intermediate_size", 5632);
  s.channels = v.integer("num_channels", 3), s.patch = v.integer("patch_size", 14);
  s.tile = v.integer("image_size", 448);
  require(s.layers > 0 && s.layers <= 4096 && s.heads > 0 && s.width > 0 && s.width % s.heads == 0 &&
              s.head_size() % 4 == 0 && s.channels > 0 && s.patch > 0 && s.tile > 0 && s.tile % (2 * s.patch) == 0,
          Fault::Model, "config.json: vision_config: ", s.layers, " layers, ", s.heads, " heads, hidden_size ", s.width,
          ", patch_size ", s.patch, " and image_size ", s.tile, " do not fit together");
  const int64_t read = v.integer("projector_input_dim", 4096), made = v.integer("projector_output_dim", 4096);
  require(v.number("pixel_shuffle_ratio", 0.5) == 0.5 && s.ffn == 4 * s.width && read == made &&
              v.integer("vision_output_dim", 7680) == made,
          Fault::Model,
          "config.json: vision_config: pixel_shuffle_ratio must be 0.5, intermediate_size four times hidden_size, and "
          "projector_input_dim, projector_output_dim and vision_output_dim the same number");
  s.name = "vision_model", s.merger = "vision_model.vision_adapter.mlp",
  s.merger_end = "multi_modal_projector.linear_1";
  s.norm = {NormKind::MeanAndBias, 1e-5};
  s.act = TowerActivation::Gelu;
  s.time_patch = 1, s.patch_has_time = false, s.patch_is_matrix = true;
  s.first_in_table = s.first_ends_table = true;
  s.table_side = s.tile / s.patch, s.table_form = TableForm::Cubic;
  s.turns_neighbours = s.turns_columns_first = true;
  const Json* rope = v.find("rope_parameters");
  s.turn_base = rope ? Config(*rope).number("rope_theta", 1e4) : v.number("rope_theta", 1e4);
  s.merger_inner = s.merger_rows = made, s.merger_bias = false;
  VisionNames& n = s.names;
  n.patches = "patch_embedding.linear", n.first = "class_embedding", n.table = "positional_embedding_vlm";
  n.norm_in = "layernorm_pre", n.norm_out = "layernorm_post", n.blocks = "model.layers";
  n.norm1 = "input_layernorm", n.norm2 = "post_attention_layernorm";
  n.qkv = nullptr, n.q = "self_attn.q_proj", n.k = "self_attn.k_proj", n.v = "self_attn.v_proj";
  n.proj = "self_attn.o_proj";
  n.merger_norm = nullptr, n.merger_in = "fc1", n.merger_out = "fc2";
  return s;
}

DecoderSpec read(const Config& c) {
  Json text = part_of(c, "text_config").json();
  if (!text.contains("model_type")) text["model_type"] = "llama4_text";
  const std::string table = "vision_model.positional_embedding_vlm";
  SeeingSpec seeing{.vision = read_vision_model(part_of(c, "vision_config")),
                    .forms = {{.renames = {{table + ".weight", table}}}}};
  Json said = c.json();
  if (!c.find("image_token_id") && !c.find("image_token_index")) said["image_token_index"] = 200092;
  DecoderSpec spec = with_tower(Config(said), read_language(Config(text), "language_model."), std::move(seeing));
  SeeingSpec parts = *spec.seeing;
  parts.aligner = {"vision_model.vision_adapter", "multi_modal_projector"};
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(parts));
  return spec;
}

Json scout_says() {
  return {{"text_config",
           {{"model_type", "llama4_text"},
            {"architectures", {"Llama4ForCausalLM"}},
            {"num_local_experts", 16},
            {"num_experts_per_tok", 1},
            {"intermediate_size_mlp", 16384},
            {"interleave_moe_layer_step", 1},
            {"no_rope_layer_interval", 4},
            {"attention_chunk_size", 8192},
            {"use_qk_norm", true},
            {"rms_norm_eps", 1e-5}}}};
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"llama4-scout", 5120, 48, 40, 8, 128, 8192, 202048, 262144, 5e5, false, {}, scout_says()},
};

const RegisterFamily llama4("llama4", {.title = "Llama 4",
                                       .architecture = "Llama4ForConditionalGeneration",
                                       .read = read,
                                       .says = {{"image_token_index", 200092},
                                                {"vision_config",
                                                 {{"model_type", "llama4_vision_model"},
                                                  {"hidden_size", 1408},
                                                  {"num_hidden_layers", 34},
                                                  {"num_attention_heads", 16},
                                                  {"intermediate_size", 5632},
                                                  {"image_size", 336},
                                                  {"patch_size", 14},
                                                  {"vision_output_dim", 4096},
                                                  {"projector_input_dim", 4096},
                                                  {"projector_output_dim", 4096},
                                                  {"pixel_shuffle_ratio", 0.5},
                                                  {"rope_theta", 1e4}}}},
                                       .presets = presets});
}  // namespace

}  // namespace apus::families::llama4
