// SPDX-License-Identifier: Apache-2.0
// dots.ocr: Qwen2 that reads pages. Its tower, whose norms are Rms and whose feed-forwards have a gate, sees pictures
// in their own size, and turns by rows and columns as Qwen2-VL's does.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"

namespace apus::families::dots_ocr {

namespace {
VisionSpec read_dots_tower(const Config& v) {
  VisionSpec s;
  s.name = "vision_tower";
  s.width = v.integer("embed_dim", 1536), s.layers = v.integer("num_hidden_layers", 42);
  s.heads = v.integer("num_attention_heads", 12), s.ffn = v.integer("intermediate_size", 4224);
  s.out = v.integer("hidden_size", 1536), s.channels = v.integer("num_channels", 3);
  s.patch = v.integer("patch_size", 14), s.merge = v.integer("spatial_merge_size", 2);
  require(s.layers > 0 && s.layers <= 4096 && s.heads > 0 && s.width > 0 && s.width % s.heads == 0 &&
              s.head_size() % 4 == 0 && s.ffn > 0 && s.patch > 0 && s.merge > 0 && s.channels > 0,
          Fault::Model, "config.json: vision_config: ", s.layers, " layers, ", s.heads, " heads, embed_dim ", s.width,
          ", patch_size ", s.patch, " and spatial_merge_size ", s.merge, " do not fit together");
  require(v.integer("temporal_patch_size", 1) == 1 && !v.flag("is_causal", false), Fault::Model,
          "config.json: vision_config: temporal_patch_size must be 1 and is_causal false: it sees single pictures");
  s.time_patch = 1, s.patch_has_time = false, s.patch_bias = true;
  s.qkv_bias = s.block_bias = v.flag("use_bias", false);
  s.norm = {NormKind::Rms, v.number("rms_norm_eps", 1e-5)};
  s.merger_norm = NormSpec{NormKind::MeanAndBias, 1e-6};
  s.act = TowerActivation::Silu;
  VisionNames& n = s.names;
  n.patches = "patch_embed.patchifier.proj", n.norm_in = "patch_embed.patchifier.norm";
  n.norm_out = v.flag("post_norm", true) ? "post_trunk_norm" : nullptr;
  n.gate = "mlp.fc1", n.up = "mlp.fc3", n.down = "mlp.fc2";
  return s;
}

DecoderSpec read(const Config& c) {
  Json text = c.json();
  for (const char* own : {"vision_config", "auto_map"}) text.erase(own);
  text["model_type"] = "qwen2";
  DecoderSpec spec = read_language(Config(text), "");
  SeeingSpec seeing{.vision = read_dots_tower(part_of(c, "vision_config")), .forms = {{}}};
  seeing.image_token = c.integer("image_token_id", 151665);
  use_sight_in_line(spec, std::move(seeing));
  return spec;
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"dots.ocr", 1536, 28, 12, 2, 0, 8960, 151936, 131072, 1e6, false},
};

const RegisterFamily dots_ocr("dots_ocr", {.title = "dots.ocr",
                                           .architecture = "DotsOCRForCausalLM",
                                           .read = read,
                                           .says = {{"image_token_id", 151665},
                                                    {"video_token_id", 151656},
                                                    {"vision_config",
                                                     {{"model_type", "dots_vit"},
                                                      {"embed_dim", 1536},
                                                      {"hidden_size", 1536},
                                                      {"intermediate_size", 4224},
                                                      {"num_hidden_layers", 42},
                                                      {"num_attention_heads", 12},
                                                      {"num_channels", 3},
                                                      {"patch_size", 14},
                                                      {"post_norm", true},
                                                      {"rms_norm_eps", 1e-5},
                                                      {"spatial_merge_size", 2},
                                                      {"temporal_patch_size", 1},
                                                      {"use_bias", false}}}},
                                           .presets = presets});
}  // namespace

}  // namespace apus::families::dots_ocr
