// SPDX-License-Identifier: Apache-2.0
#include "models/spec/qwen_gguf.h"

#include "gguf/turns.h"

namespace apus {

GgufTower qwen_tower(const std::string& projector, const std::string& architecture, const std::string& text,
                     const QwenTowerNames& names) {
  constexpr int64_t kFrames = 2;  // that a patch spans: a tensor each in the file
  GgufTower tower{.projector = projector, .architecture = architecture, .text = text};
  tower.begins = {{"model.", "model.language_model."}};
  GgufForm& form = tower.form;
  form.layers = "model.visual.blocks.";
  form.names = {
      {"norm1", "ln1"},
      {"norm2", "ln2"},
      {"attn.proj", "attn_out"},
      {names.up, "ffn_up"},
      {names.down, "ffn_down"},
      {"model.visual.merger." + names.norm, "v.post_ln"},
      {"model.visual.merger." + names.first, "mm.0"},
      {"model.visual.merger." + names.second, "mm.2"},
      {"model.visual.patch_embed.proj.bias", "v.patch_embd.bias"},
      {"model.visual.patch_embed.proj.weight", "v.patch_embd.weight", {.rows = first_half, .groups = kFrames}},
      {"model.visual.patch_embed.proj.weight", "v.patch_embd.weight.1", {.rows = second_half, .groups = kFrames}}};
  if (names.qkv)
    form.names.push_back({"attn.qkv", "attn_qkv"});
  else
    form.names.insert(form.names.end(), {{"attn.qkv", "attn_q", {.rows = query_block}},
                                         {"attn.qkv", "attn_k", {.rows = key_block}},
                                         {"attn.qkv", "attn_v", {.rows = value_block}}});
  form.keys = {{"depth", "vision.block_count"},
               {"num_heads", "vision.attention.head_count"},
               {"patch_size", "vision.patch_size"}};
  tower.says = {{"vision_config", {{"in_channels", 3}, {"temporal_patch_size", kFrames}, {"spatial_merge_size", 2}}}};
  tower.tokens = {{"image_token_id", "<|image_pad|>"},
                  {"video_token_id", "<|video_pad|>"},
                  {"vision_start_token_id", "<|vision_start|>"},
                  {"vision_end_token_id", "<|vision_end|>"}};
  return tower;
}

}  // namespace apus
