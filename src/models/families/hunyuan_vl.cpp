// SPDX-License-Identifier: Apache-2.0
// HunyuanOCR: Hunyuan (dense) whose heads turn by four positions, a token's own and a picture's columns, lines and
// number; a tower of pictures in their own size, of whose patches lines are made, each with an end.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::hunyuan_vl {

namespace {
// Settings of the text stand at the top of older files, some under names of their own.
Json text_words(const Config& c) {
  Json said = {{"vocab_size", 290943},       {"hidden_size", 4096},       {"intermediate_size", 11008},
               {"num_hidden_layers", 32},    {"num_attention_heads", 32}, {"max_position_embeddings", 2048},
               {"tie_word_embeddings", true}};
  said.update(in_usual_words(text_part(c), {{"attention_head_dim", "head_dim"}, {"org_vocab_size", "vocab_size"}}));
  said["model_type"] = "hunyuan_v1_dense";
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!said.contains(key) || !said[key].is_object()) continue;
    for (const char* type : {"type", "rope_type"})
      if (said[key].value(type, "") == "xdrope") said[key][type] = "dynamic";
  }
  return said;
}

// How many of a head's numbers follow each position; taken out of the settings.
std::vector<int64_t> take_sections(Json& text) {
  std::vector<int64_t> sections;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!text.contains(key) || !text[key].is_object()) continue;
    for (const char* name : {"xdrope_section", "mrope_section"}) {
      if (!text[key].contains(name) || text[key][name].is_null()) continue;
      require(text[key][name].is_array(), Fault::Model, "config.json: ", name, " must be a list of numbers");
      sections.clear();
      for (const Json& each : text[key][name]) {
        require(each.is_number() && each.get<double>() == static_cast<double>(each.get<int64_t>()), Fault::Model,
                "config.json: ", name, " must be a list of whole numbers");
        sections.push_back(each.get<int64_t>());
      }
      text[key].erase(name);
    }
  }
  return sections;
}

VisionSpec read_vision(const Config& v, int64_t out) {
  Json said = v.json();
  const int64_t patch = v.integer("patch_size", 16), side = v.integer("max_image_size", 2048);
  require(patch > 0 && side >= patch && v.text("interpolate_mode", "bilinear") == "bilinear" &&
              v.text("hidden_act", "gelu") == "gelu" && v.integer("temporal_patch_size", 1) == 1,
          Fault::Model, "config.json: vision_config: patch_size ", patch, " and max_image_size ", side,
          " do not fit together, or interpolate_mode, hidden_act and temporal_patch_size are not bilinear, gelu and 1");
  said["model_type"] = "siglip_vision_model", said["vision_use_head"] = false;
  said["image_size"] = side, said["patch_size"] = patch, said["hidden_act"] = "gelu";
  said["layer_norm_eps"] = v.number("layer_norm_eps", v.number("rms_norm_eps", 1e-5));
  for (const auto& [key, unsaid] : {std::pair{"hidden_size", 1152},
                                    {"intermediate_size", 4304},
                                    {"num_hidden_layers", 27},
                                    {"num_attention_heads", 16}})
    if (!v.find(key)) said[key] = unsaid;
  VisionSpec s = read_tower(Config(said));
  s.name = "vit", s.merger = "vit.perceive";
  s.tile = 0, s.merge = v.integer("spatial_merge_size", 2), s.out = out;
  require(s.merge > 0, Fault::Model, "config.json: vision_config: spatial_merge_size must be above 0");
  s.table_form = TableForm::Linear, s.table_before = 1;
  s.lines.cell = 4 * s.width, s.lines.norm.eps = s.norm.eps;
  VisionNames& n = s.names;
  n.blocks = "layers", n.norm1 = "input_layernorm", n.norm2 = "post_attention_layernorm";
  n.proj = "self_attn.o_proj", n.up = "mlp.dense_h_to_4h", n.down = "mlp.dense_4h_to_h", n.idle_norm = nullptr;
  return s;
}

DecoderSpec read(const Config& c) {
  Json text = text_words(c);
  const std::vector<int64_t> sections = take_sections(text);
  DecoderSpec spec = read_language(Config(text), "");
  RopeSpec& rope = spec.ropes[0];
  require(sections.size() == 4 && std::accumulate(sections.begin(), sections.end(), int64_t{0}) == rope.dim / 2 &&
              *std::min_element(sections.begin(), sections.end()) >= 0,
          Fault::Model,
          "config.json: the rotary settings need an xdrope_section (or mrope_section) of four numbers, half of "
          "a head's ",
          rope.dim, " in sum");
  rope.sections = sections, rope.sections_of_numbers = true;
  spec.tied = spec.tied || c.flag("tie_word_embeddings", true);
  SeeingSpec seeing{.vision = read_vision(part_of(c, "vision_config"), spec.shape.hidden)};
  seeing.image_token = c.integer("image_token_id", 120120), seeing.time = TimeRule::Numbered;
  require(seeing.image_token < spec.shape.vocab, Fault::Model, "config.json: image_token_id ", seeing.image_token,
          " must lie inside the vocabulary of ", spec.shape.vocab);
  seeing.language = {"model", "lm_head"}, seeing.tower = {"vit.embeddings", "vit.layers"};
  seeing.aligner = {seeing.vision.merger};
  seeing.forms = {{}};
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
  return spec;
}

Json turns() {
  return {{"type", "xdrope"}, {"alpha", 1000.0}, {"factor", 1.0},         {"beta_fast", 32},
          {"beta_slow", 1},   {"mscale", 1.0},   {"mscale_all_dim", 1.0}, {"xdrope_section", {16, 16, 16, 16}}};
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"hunyuan-ocr-1b", 1024, 24, 16, 8, 128, 3584, 120818, 32768, 1e4, true},
};

const RegisterFamily hunyuan_vl("hunyuan_vl", {.title = "HunyuanOCR",
                                               .architecture = "HunYuanVLForConditionalGeneration",
                                               .read = read,
                                               .says = {{"rms_norm_eps", 1e-5},
                                                        {"rope_scaling", turns()},
                                                        {"image_token_id", 120120},
                                                        {"im_start_id", 120118},
                                                        {"im_end_id", 120119},
                                                        {"im_newline_id", 120121},
                                                        {"vision_config",
                                                         {{"hidden_size", 1152},
                                                          {"intermediate_size", 4304},
                                                          {"num_hidden_layers", 27},
                                                          {"num_attention_heads", 16},
                                                          {"patch_size", 16},
                                                          {"max_image_size", 2048},
                                                          {"spatial_merge_size", 2},
                                                          {"rms_norm_eps", 1e-5},
                                                          {"hidden_act", "gelu"}}}},
                                               .presets = presets});
}  // namespace

}  // namespace apus::families::hunyuan_vl
