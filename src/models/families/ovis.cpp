// SPDX-License-Identifier: Apache-2.0
// Ovis 1.6 and 2 in their own files: SigLIP or AIMv2 before any text model. What the tower gives of a tile are shares
// of words of its own; media stand in the text as numbers below 0: kAtom, and marks before, between and behind tiles.
#include "models/families/ovis.h"

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus {

VisionSpec read_aimv2(const Config& v, const char* bias) {
  VisionSpec s;
  s.width = v.integer("hidden_size", 1024), s.layers = v.integer("num_hidden_layers", 24);
  s.heads = v.integer("num_attention_heads", 8), s.ffn = v.integer("intermediate_size", 2816);
  s.channels = v.integer("num_channels", 3), s.patch = v.integer("patch_size", 14);
  s.tile = v.integer("image_size", 224);
  require(s.layers > 0 && s.layers <= 4096 && s.heads > 0 && s.width > 0 && s.width % s.heads == 0 && s.ffn > 0 &&
              s.channels > 0 && s.patch > 0 && s.tile >= s.patch,
          Fault::Model, "config.json: the vision tower's ", s.layers, " layers, ", s.heads, " heads, hidden_size ",
          s.width, ", patch_size ", s.patch, " and image_size ", s.tile, " do not fit together");
  const std::string act = v.text("hidden_act", "silu");
  require(act == "silu", Fault::Model, "config.json: the vision tower's hidden_act '", act,
          "' is not supported, only silu");
  s.norm = {NormKind::Rms, v.number("rms_norm_eps", 1e-5)};
  s.act = TowerActivation::Silu;
  s.merge = s.time_patch = 1, s.patch_has_time = false, s.patch_bias = true, s.turned = false;
  s.qkv_bias = v.flag("qkv_bias", false), s.block_bias = v.flag(bias, false);
  s.table_side = s.tile / s.patch, s.table_form = TableForm::Cubic, s.table_behind_norm = true;
  return s;
}

void use_own_aimv2_names(VisionSpec& s) {
  s.table_bare = true;
  VisionNames& n = s.names;
  n.patches = "preprocessor.patchifier.proj", n.norm_in = "preprocessor.patchifier.norm";
  n.table = "preprocessor.pos_embed", n.blocks = "trunk.blocks";
  n.norm1 = "norm_1", n.norm2 = "norm_2", n.qkv = "attn.qkv", n.proj = "attn.proj";
  n.gate = "mlp.fc1", n.up = "mlp.fc3", n.down = "mlp.fc2";
}

void use_visual_words(const Config& said, VisionSpec& tower, std::vector<int64_t> marks) {
  const std::string how = said.text("tokenize_function", "softmax");
  require(how == "softmax" && !said.flag("drop_cls_token", false), Fault::Model, "config.json: tokenize_function '",
          how, "' and drop_cls_token true are not supported, only softmax and false");
  tower.join = said.integer("hidden_stride", 1);
  tower.words = said.integer("vocab_size", 16384), tower.mark_tokens = std::move(marks);
  require(tower.join > 0 && tower.join <= 64 && tower.words > tower.marks(), Fault::Model,
          "config.json: hidden_stride ", tower.join, " must be from 1 to 64, and the vision tower's vocab_size ",
          tower.words, " above ", tower.marks());
  tower.merger_norm_first = false, tower.merger_norm = NormSpec{NormKind::MeanAndBias, 1e-5};
}

DecoderSpec with_visual_words(DecoderSpec spec, SeeingSpec seeing, int64_t atom) {
  seeing.vision.out = spec.shape.hidden;
  seeing.image_token = seeing.video_token = atom;
  seeing.time = TimeRule::Text;
  seeing.language = {spec.backbone, spec.head_name};
  seeing.tower = {seeing.vision.name, seeing.vision.word_table}, seeing.aligner = {seeing.vision.merger};
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
  return spec;
}

}  // namespace apus

namespace apus::families::ovis {

namespace {
constexpr int64_t kAtom = -300;

VisionSpec read_own_aimv2(const Config& v) {
  VisionSpec s = read_aimv2(v, "use_bias");
  use_own_aimv2_names(s);
  s.name = "visual_tokenizer.backbone", s.names.idle_norm = "trunk.post_trunk_norm";
  return s;
}

VisionSpec read_own_siglip(const Config& v) {
  Json usual = v.json();
  usual["model_type"] = "siglip_vision_model", usual["vision_use_head"] = false;
  VisionSpec s = read_tower(Config(usual));
  s.name = "visual_tokenizer.backbone.vision_model";
  return s;
}

DecoderSpec read(const Config& c) {
  const Config said = part_of(c, "visual_tokenizer_config"), backbone = part_of(said, "backbone_config");
  const std::string type = backbone.text("model_type", "");
  require(type == "aimv2" || type == "siglip_vision_model", Fault::Model,
          "config.json: visual_tokenizer_config: backbone_config: model_type '", type,
          "' is not supported, only aimv2 and siglip_vision_model");
  require(!said.find("hd_booster"), Fault::Model,
          "config.json: visual_tokenizer_config: hd_booster is not supported, which no Ovis 1.6 or 2 has");
  SeeingSpec seeing{.vision = type == "aimv2" ? read_own_aimv2(backbone) : read_own_siglip(backbone), .forms = {{}}};
  VisionSpec& tower = seeing.vision;
  use_visual_words(said, tower, {-301, -302, -303, -304, -305});
  tower.merger = "visual_tokenizer.head", tower.word_table = "vte";
  tower.names.merger_in = "0", tower.names.merger_norm = "1";
  return with_visual_words(read_language(part_of(c, "llm_config"), "llm."), std::move(seeing), kAtom);
}

Json text_says(const char* type, const char* name) {
  return {{"llm_config", {{"model_type", type}, {"architectures", {name}}}}};
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"ovis2-1b", 896, 24, 14, 2, 64, 4864, 151936, 32768, 1e6, true, {}, text_says("qwen2", "Qwen2ForCausalLM")},
    {"ovis2-8b", 3584, 28, 28, 4, 128, 18944, 152064, 32768, 1e6, false, {}, text_says("qwen2", "Qwen2ForCausalLM")},
};

const RegisterFamily ovis("ovis", {.title = "Ovis 1.6 and 2",
                                   .architecture = "Ovis",
                                   .read = read,
                                   .says = {{"visual_tokenizer_config",
                                             {{"model_type", "aimv2_visual_tokenizer"},
                                              {"hidden_stride", 2},
                                              {"vocab_size", 65536},
                                              {"tokenize_function", "softmax"},
                                              {"drop_cls_token", false},
                                              {"backbone_config",
                                               {{"model_type", "aimv2"},
                                                {"hidden_size", 1024},
                                                {"num_hidden_layers", 24},
                                                {"num_attention_heads", 8},
                                                {"intermediate_size", 2816},
                                                {"image_size", 448},
                                                {"patch_size", 14},
                                                {"qkv_bias", false},
                                                {"use_bias", false},
                                                {"rms_norm_eps", 1e-5}}}}}},
                                   .presets = presets});
}  // namespace

}  // namespace apus::families::ovis
