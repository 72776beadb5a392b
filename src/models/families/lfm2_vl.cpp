// SPDX-License-Identifier: Apache-2.0
// LFM2-VL: LFM2 behind SigLIP 2's tower, which sees pictures near their own size or in tiles; squares of its patches
// become one row.
#include <cmath>

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::lfm2_vl {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec text = read_text_part(c, "lfm2");
  text.tied = c.flag("tie_embedding", c.flag("tie_word_embeddings", true));
  SeeingSpec seeing{.vision = read_siglip2_tower(part_of(c, "vision_config"))};
  VisionSpec& tower = seeing.vision;
  use_two_layers(c, tower, text.shape.hidden);
  tower.merger_inner = c.integer("projector_hidden_size", 2560), tower.merger_bias = c.flag("projector_bias", true);
  tower.merge = c.integer("downsample_factor", 2), tower.merger_norm_first = false;
  require(tower.merge > 0 && tower.merger_inner > 0, Fault::Model,
          "config.json: downsample_factor and projector_hidden_size must be above 0");
  if (c.flag("projector_use_layernorm", true)) {
    tower.merger_norm = NormSpec{NormKind::MeanAndBias, 1e-5};
    tower.names.merger_norm = "layer_norm";
  }
  // The text's names hold for the tower too, which calls what follows attention as the text's files do.
  tower.names.proj = "self_attn.o_proj";
  const auto& inside = text.forms.front().inside;
  seeing.forms = {{.renames = {{"model.vision_tower.", "model.vision_tower.vision_model."}}, .inside = inside},
                  {.inside = inside}};
  return with_tower(c, std::move(text), std::move(seeing));
}

// How its tower stands in a GGUF file, which has its patches as planes of a colour.
GgufTurn::Rows planes(const GgufSizes& s, int64_t width) {
  const int64_t colours = s.of("num_channels", 3);
  GgufTurn::Rows all;
  for (int64_t colour = 0; colour < colours; ++colour)
    for (int64_t i = colour; i < width; i += colours) all.push_back(i);
  return all;
}
std::vector<int64_t> patch(const GgufSizes& s) {
  return {s.of("num_channels", 3), s.of("patch_size", 16), s.of("patch_size", 16)};
}
void read_file_of_tower(const GgufSays& clip, Json& config) {
  config["downsample_factor"] = clip.integer("vision.projector.scale_factor").value_or(2);
  if (const GgufTensor* places = clip.tensor("v.position_embd.weight"))
    config["vision_config"]["num_patches"] = places->shape.at(0);
  if (const GgufTensor* inner = clip.tensor("mm.1.weight")) config["projector_hidden_size"] = inner->shape.at(0);
  config["projector_bias"] = clip.tensor("mm.1.bias") != nullptr;
  config["projector_use_layernorm"] = clip.tensor("mm.input_norm.weight") != nullptr;
}
void write_file_of_tower(const Json& config, GgufSettingsWriter& out) {
  const Json vision = config.value("vision_config", Json::object());
  const auto places = static_cast<double>(vision.value("num_patches", int64_t{256}));
  out.whole("vision.image_size", std::lround(std::sqrt(places)) * vision.value("patch_size", int64_t{16}));
  out.whole("vision.projector.scale_factor", config.value("downsample_factor", int64_t{2}));
  out.own("use_gelu", GgufValue::flag(true));
}
GgufTower gguf_tower() {
  GgufTower tower = siglip_gguf_tower("model.vision_tower.");
  const std::string joins = "model.multi_modal_projector.";
  tower.projector = "lfm2", tower.architecture = "lfm2", tower.text = "lfm2";
  tower.part = "text_config", tower.part_type = "lfm2";
  tower.begins = {{"model.", "model.language_model."}};
  for (GgufPair& pair : tower.form.names)
    if (pair.gguf == "v.patch_embd")
      pair = {pair.hf + ".weight", "v.patch_embd.weight", {.columns = planes, .row_shape = patch}};
  tower.form.names.insert(tower.form.names.end(),
                          {{"model.vision_tower.embeddings.patch_embedding.bias", "v.patch_embd.bias"},
                           {"self_attn.o_proj", "attn_out"},
                           {joins + "layer_norm", "mm.input_norm"},
                           {joins + "linear_1", "mm.1"},
                           {joins + "linear_2", "mm.2"}});
  std::erase_if(tower.form.keys, [](const GgufKey& key) { return key.config == "image_size"; });
  tower.says["vision_config"]["model_type"] = "siglip2_vision_model";
  tower.tokens = {{"image_token_id", "<image>"}};
  tower.read = read_file_of_tower, tower.write = write_file_of_tower;
  return tower;
}

Json parts(Json text, int64_t width, int64_t layers, int64_t heads, int64_t ffn) {
  text["model_type"] = "lfm2", text["architectures"] = {"Lfm2ForCausalLM"};
  return {{"text_config", text},
          {"vision_config",
           {{"model_type", "siglip2_vision_model"},
            {"hidden_size", width},
            {"num_hidden_layers", layers},
            {"num_attention_heads", heads},
            {"intermediate_size", ffn},
            {"num_patches", 256},
            {"patch_size", 16},
            {"vision_use_head", false}}}};
}
Json text_says(std::initializer_list<int64_t> attended) {
  return {{"full_attn_idxs", attended}, {"conv_L_cache", 3}, {"norm_eps", 1e-5}, {"block_auto_adjust_ff_dim", false}};
}

// name           hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"lfm2-vl-450m",
     1024,
     16,
     16,
     8,
     64,
     4608,
     65536,
     128000,
     1e6,
     true,
     {},
     parts(text_says({2, 5, 8, 10, 12, 14}), 768, 12, 12, 3072)},
    {"lfm2-vl-1.6b",
     2048,
     16,
     32,
     8,
     64,
     8192,
     65536,
     128000,
     1e6,
     true,
     {},
     parts(text_says({2, 5, 8, 10, 12, 14}), 1152, 27, 16, 4304)},
    {"lfm2-vl-3b",
     2048,
     30,
     32,
     8,
     64,
     10752,
     65536,
     128000,
     1e6,
     true,
     {},
     parts(text_says({2, 6, 9, 13, 17, 21, 24, 27}), 1152, 27, 16, 4304)},
};

const RegisterFamily lfm2_vl("lfm2_vl", {.title = "LFM2-VL",
                                         .architecture = "Lfm2VlForConditionalGeneration",
                                         .read = read,
                                         .says = {{"image_token_id", 396},
                                                  {"downsample_factor", 2},
                                                  {"projector_hidden_act", "gelu"},
                                                  {"projector_hidden_size", 2560}},
                                         .presets = presets,
                                         .gguf_tower = gguf_tower()});
}  // namespace

}  // namespace apus::families::lfm2_vl
