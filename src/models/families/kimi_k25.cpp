// SPDX-License-Identifier: Apache-2.0
// Kimi K2.5 and 2.6: Kimi K2 behind MoonViT, in their own files and as transformers writes them. Images; not videos.
#include "models/families/kimi_vl.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"

namespace apus::families::kimi_k25 {

namespace {
// Its own files name the tower's settings otherwise than those that transformers writes.
Json k25_vision(const Config& c) {
  Json vision = part_of(c, "vision_config").json();
  for (const auto& [theirs, ours] : {std::pair{"vt_hidden_size", "hidden_size"},
                                     {"vt_num_hidden_layers", "num_hidden_layers"},
                                     {"vt_num_attention_heads", "num_attention_heads"},
                                     {"vt_intermediate_size", "intermediate_size"},
                                     {"pos_emb_height", "init_pos_emb_height"},
                                     {"pos_emb_width", "init_pos_emb_width"}})
    if (vision.contains(theirs)) vision[ours] = vision[theirs];
  return vision;
}

DecoderSpec read(const Config& c) {
  const Json vision = k25_vision(c);
  SeeingSpec seeing{.vision = read_moonvit(Config(vision))};
  VisionSpec& tower = seeing.vision;
  tower.merger = "mm_projector", tower.names.merger_in = "proj.0", tower.names.merger_out = "proj.2";
  tower.merger_norm = NormSpec{NormKind::MeanAndBias, c.number("projection_layer_norm_eps", 1e-5)};
  // Its own files; and what transformers 5.24 writes.
  seeing.forms = {{},
                  {.renames = {{"language_model.model.layers.", "language_model.model.blocks."},
                               {"vision_tower.patch_embed.proj.", "vision_tower.encoder.patch_embed.proj."},
                               {"mm_projector.pre_norm.", "model.mm_projector.pre_norm."}}}};
  return with_moonvit(c, std::move(seeing));
}

Json k2_says() {
  return {{"text_config",
           {{"model_type", "kimi_k2"},
            {"architectures", {"DeepseekV3ForCausalLM"}},
            {"rms_norm_eps", 1e-5},
            {"q_lora_rank", 1536},
            {"kv_lora_rank", 512},
            {"qk_nope_head_dim", 128},
            {"qk_rope_head_dim", 64},
            {"v_head_dim", 128},
            {"n_routed_experts", 384},
            {"n_shared_experts", 1},
            {"num_experts_per_tok", 8},
            {"moe_intermediate_size", 2048},
            {"first_k_dense_replace", 1},
            {"n_group", 1},
            {"topk_group", 1},
            {"routed_scaling_factor", 2.827},
            {"norm_topk_prob", true},
            {"scoring_func", "sigmoid"}}}};
}

const std::vector<Preset> presets = {
    {"kimi-k2.5", 7168, 61, 64, 64, 0, 18432, 163840, 262144, 5e4, false, {}, k2_says()},
};

const RegisterFamily kimi_k25("kimi_k25", {.title = "Kimi K2.5 and K2.6",
                                           .architecture = "KimiK25ForConditionalGeneration",
                                           .read = read,
                                           .says = {{"media_placeholder_token_id", 163605},
                                                    {"vision_config",
                                                     {{"vt_hidden_size", 1152},
                                                      {"vt_num_hidden_layers", 27},
                                                      {"vt_num_attention_heads", 16},
                                                      {"vt_intermediate_size", 4304},
                                                      {"patch_size", 14},
                                                      {"init_pos_emb_height", 64},
                                                      {"init_pos_emb_width", 64},
                                                      {"init_pos_emb_time", 4},
                                                      {"merge_kernel_size", {2, 2}}}}},
                                           .presets = presets});
}  // namespace

}  // namespace apus::families::kimi_k25
