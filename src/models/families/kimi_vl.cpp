// SPDX-License-Identifier: Apache-2.0
// Kimi-VL: Moonlight (DeepSeek-V3's architecture) behind MoonViT, a tower that sees pictures in their own size.
#include "models/families/kimi_vl.h"

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus {

VisionSpec read_moonvit(const Config& v) {
  VisionSpec s;
  s.width = v.integer("hidden_size", 1152), s.layers = v.integer("num_hidden_layers", 27);
  s.heads = v.integer("num_attention_heads", 16), s.ffn = v.integer("intermediate_size", 4304);
  s.patch = v.integer("patch_size", 14);
  const std::vector<int64_t> merge =
      v.find("merge_kernel_size") ? v.integers("merge_kernel_size") : std::vector<int64_t>{2, 2};
  s.merge = merge.empty() ? 0 : merge[0];
  s.table_side = v.integer("init_pos_emb_height", 64);
  require(s.layers > 0 && s.layers <= 4096 && s.heads > 0 && s.width > 0 && s.width % s.heads == 0 &&
              s.head_size() % 4 == 0 && s.ffn > 0 && s.patch > 0 && s.merge > 0 && s.table_side > 0 &&
              s.table_side == v.integer("init_pos_emb_width", 64) && merge == std::vector<int64_t>(2, s.merge),
          Fault::Model, "config.json: vision_config: ", s.layers, " layers, ", s.heads, " heads, hidden_size ", s.width,
          ", patch_size ", s.patch, ", merge_kernel_size (twice ", s.merge,
          ") and init_pos_emb_height and _width (both ", s.table_side, ") do not fit together");
  s.name = "vision_tower", s.merger = "multi_modal_projector";
  s.norm = {NormKind::MeanAndBias, 1e-5};
  s.act = TowerActivation::GeluTanh;
  s.time_patch = 1, s.patch_has_time = false, s.patch_bias = true;
  s.turns_neighbours = true;
  s.table_form = TableForm::Cubic, s.table_is_plane = true;
  VisionNames& n = s.names;
  n.table = "patch_embed.pos_emb", n.blocks = "encoder.blocks", n.norm_out = "encoder.final_layernorm";
  n.norm1 = "norm0", n.norm2 = "norm1", n.qkv = "wqkv", n.proj = "wo", n.up = "mlp.fc0", n.down = "mlp.fc1";
  n.merger_norm = "pre_norm", n.merger_in = "linear_1", n.merger_out = "linear_2";
  return s;
}

DecoderSpec with_moonvit(const Config& c, SeeingSpec seeing) {
  Json text = part_of(c, "text_config").json(), said = c.json();
  if (!text.contains("model_type")) text["model_type"] = "deepseek_v3";
  const int64_t otherwise = c.integer("image_token_id", 163605);
  said["image_token_id"] = c.integer("media_placeholder_token_id", otherwise);
  return with_tower(Config(said), read_language(Config(text), "language_model."), std::move(seeing));
}

}  // namespace apus

namespace apus::families::kimi_vl {

namespace {
DecoderSpec read(const Config& c) {
  return with_moonvit(c, {.vision = read_moonvit(part_of(c, "vision_config")), .forms = {{}}});
}

Json kimi_text_says() {
  return {{"text_config",
           {{"model_type", "deepseek_v3"},
            {"architectures", {"DeepseekV3ForCausalLM"}},
            {"rms_norm_eps", 1e-5},
            {"q_lora_rank", nullptr},
            {"kv_lora_rank", 512},
            {"qk_nope_head_dim", 128},
            {"qk_rope_head_dim", 64},
            {"v_head_dim", 128},
            {"n_routed_experts", 64},
            {"n_shared_experts", 2},
            {"num_experts_per_tok", 6},
            {"moe_intermediate_size", 1408},
            {"first_k_dense_replace", 1},
            {"n_group", 1},
            {"topk_group", 1},
            {"routed_scaling_factor", 2.446},
            {"norm_topk_prob", true},
            {"scoring_func", "sigmoid"}}}};
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"kimi-vl-a3b", 2048, 27, 16, 16, 0, 11264, 163840, 131072, 8e5, false, {}, kimi_text_says()},
};

const RegisterFamily kimi_vl("kimi_vl", {.title = "Kimi-VL",
                                         .architecture = "KimiVLForConditionalGeneration",
                                         .read = read,
                                         .says = {{"media_placeholder_token_id", 163605},
                                                  {"vision_config",
                                                   {{"model_type", "moonvit"},
                                                    {"hidden_size", 1152},
                                                    {"num_hidden_layers", 27},
                                                    {"num_attention_heads", 16},
                                                    {"intermediate_size", 4304},
                                                    {"patch_size", 14},
                                                    {"init_pos_emb_height", 64},
                                                    {"init_pos_emb_width", 64},
                                                    {"merge_kernel_size", {2, 2}}}}},
                                         .presets = presets});
}  // namespace

}  // namespace apus::families::kimi_vl
