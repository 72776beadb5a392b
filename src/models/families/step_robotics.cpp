// SPDX-License-Identifier: Apache-2.0
// Step3-VL: Qwen3 behind the perception encoder, whose rows two convolutions make few of; tiles of a picture, and all
// of it in one square.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"

namespace apus::families::step_robotics {

namespace {
VisionSpec read_encoder(const Config& c) {
  const auto expect = [&](const char* key, bool wanted) {
    require(c.flag(key, wanted) == wanted, Fault::Model, "config.json: vision_config: ", key, " ", !wanted,
            " is not supported");
  };
  for (const char* key : {"use_rope2d", "use_abs_posemb", "use_ln_pre"}) expect(key, true);
  for (const char* key : {"use_cls_token", "use_ln_post"}) expect(key, false);
  const std::string act = c.text("hidden_act", "quick_gelu");
  VisionSpec s;
  s.width = c.integer("width", 1536), s.layers = c.integer("layers", 47), s.heads = c.integer("heads", 16);
  s.ffn = static_cast<int64_t>(static_cast<double>(s.width) * c.number("mlp_ratio", 8960.0 / 1536));
  s.patch = c.integer("patch_size", 14);
  const int64_t image = c.integer("image_size", 728);
  require(s.layers > 0 && s.layers <= 4096 && s.heads > 0 && s.width > 0 && s.width % s.heads == 0 &&
              s.head_size() % 4 == 0 && s.ffn > 0 && s.patch > 0 && image >= s.patch && act == "quick_gelu",
          Fault::Model, "config.json: vision_config: ", s.layers, " layers, ", s.heads, " heads, width ", s.width,
          ", patch_size ", s.patch, " and image_size ", image, " do not fit together, or hidden_act is '", act,
          "' (quick_gelu is supported)");
  s.name = "vision_model", s.merger = "vit_large_projector";
  s.norm = {NormKind::MeanAndBias, 1e-5}, s.act = TowerActivation::QuickGelu;
  s.merge = s.time_patch = 1, s.patch_has_time = false;
  s.turns_neighbours = s.turns_columns_first = true;
  s.table_side = image / s.patch, s.table_form = TableForm::Linear;
  VisionNames& n = s.names;
  n.patches = "conv1", n.table = "positional_embedding", n.blocks = "transformer.resblocks", n.norm_in = "ln_pre";
  n.norm1 = "ln_1", n.norm2 = "ln_2", n.scale1 = "ls_1.gamma", n.scale2 = "ls_2.gamma";
  n.proj = "attn.out_proj", n.up = "mlp.c_fc", n.down = "mlp.c_proj";
  n.narrow = "vit_downsampler1", n.narrower = "vit_downsampler2";
  n.merger_norm = nullptr, n.merger_in = "linear", n.merger_out = nullptr;
  return s;
}

DecoderSpec read(const Config& c) {
  Json text = part_of(c, "text_config").json();
  if (!text.contains("model_type")) text["model_type"] = "qwen3";
  DecoderSpec spec = read_language(Config(text), "");
  SeeingSpec seeing{.vision = read_encoder(part_of(c, "vision_config"))};
  seeing.vision.out = spec.shape.hidden, seeing.vision.merger_bias = c.flag("projector_bias", false);
  seeing.forms = {{.renames = {{"vit_large_projector.linear.", "vit_large_projector."},
                               {"vision_model.positional_embedding.weight", "vision_model.positional_embedding"}},
                   .inside = {{".attn.qkv.", ".attn.in_proj_"}}}};
  seeing.image_token = c.integer("image_token_id", 151679);
  require(seeing.image_token < spec.shape.vocab, Fault::Model, "config.json: image_token_id ", seeing.image_token,
          " must lie inside the vocabulary of ", spec.shape.vocab);
  use_sight_in_line(spec, std::move(seeing));
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"step3-vl-10b",
     4096,
     36,
     32,
     8,
     128,
     12288,
     151936,
     65536,
     1e6,
     false,
     {},
     {{"text_config", {{"model_type", "qwen3"}, {"architectures", {"Qwen3ForCausalLM"}}}}}},
};

const RegisterFamily step3_vl("step_robotics", {.title = "Step3-VL",
                                                .architecture = "StepVLForConditionalGeneration",
                                                .read = read,
                                                .says = {{"image_token_id", 151679},
                                                         {"projector_bias", false},
                                                         {"understand_projector_stride", 2},
                                                         {"vision_config",
                                                          {{"model_type", "perception_encoder"},
                                                           {"image_size", 728},
                                                           {"patch_size", 14},
                                                           {"width", 1536},
                                                           {"layers", 47},
                                                           {"heads", 16},
                                                           {"mlp_ratio", 8960.0 / 1536},
                                                           {"hidden_act", "quick_gelu"},
                                                           {"ls_init_value", 0.1}}}},
                                                .presets = presets});
}  // namespace

}  // namespace apus::families::step_robotics
