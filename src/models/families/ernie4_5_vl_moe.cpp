// SPDX-License-Identifier: Apache-2.0
// ERNIE 4.5 VL: ERNIE 4.5 with experts of its own for what is seen. Its tower is Qwen2-VL's, behind which pairs of a
// video's frames become one.
#include "models/families/ernie4_5_vl_moe.h"

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_seeing.h"

namespace apus::families::ernie4_5_vl_moe {

namespace {
Json with_usual_sizes(const Config& said, Json usual) {
  usual.update(said.json());
  return usual;
}

// A number for text and one for what is seen.
std::vector<int64_t> expert_widths(const Config& text) {
  const std::vector<int64_t> said =
      text.find("moe_intermediate_size") ? text.integers("moe_intermediate_size") : std::vector<int64_t>{1536, 512};
  require(said.size() == 2 && said[0] > 0 && said[1] > 0, Fault::Model,
          "config.json: moe_intermediate_size has two entries, the width of experts for text and for what is seen");
  return said;
}

void use_experts_by_kind(const Config& text, DecoderSpec& spec) {
  require(!text.flag("use_bias", false), Fault::Model,
          "config.json: use_bias is not supported with experts; no known checkpoint has it");
  const std::vector<int64_t> widths = expert_widths(text);
  const auto number = [&](const char* key, int64_t unsaid) {
    const auto found = text.json().find(key);
    return found != text.json().end() && found->is_null() ? 0 : text.integer(key, unsaid);
  };
  const MixtureSpec mixture{.experts = number("moe_num_experts", 64),
                            .per_token = number("moe_k", 6),
                            .ffn = widths[0],
                            .shared_ffn = widths[0] * number("moe_num_shared_experts", 2),
                            .router = {.normalise = true},
                            .names = {.correction = "moe_statics.e_score_correction_bias",
                                      .correction_rows = 2,
                                      .shared = "shared_experts",
                                      .shared_is_gated = false},
                            .media_ffn = widths[1]};
  const auto sparse = sparse_layers(text, spec.shape.layers, 1);
  use_experts(text, spec, mixture, sparse);
}

VisionSpec read_ernie_tower(const Config& c, const DecoderSpec& text) {
  const Json whole = with_usual_sizes(
      part_of(c, "vision_config"),
      {{"depth", 32}, {"hidden_size", 1280}, {"num_heads", 16}, {"patch_size", 14}, {"intermediate_size", 5120}});
  const Config said(whole);
  VisionSpec tower = read_vision(said, "hidden_size");
  const std::string act = said.text("hidden_act", "quick_gelu");
  require(act == "quick_gelu", Fault::Model, "config.json: vision_config: hidden_act '", act,
          "' is not known in this family, only quick_gelu");
  tower.name = "model.vision_tower", tower.merger = "model.resampler_model";
  tower.ffn = said.integer("intermediate_size");
  tower.out = text.shape.hidden;
  tower.norm.eps = said.number("rms_norm_eps", 1e-6);
  tower.time_patch = 1, tower.patch_has_time = false, tower.patch_is_matrix = true;
  tower.names.norm_out = "ln";
  tower.time_merge = said.integer("temporal_merge_size", 2);
  require(tower.time_merge == 2, Fault::Model, "config.json: vision_config: temporal_merge_size is ", tower.time_merge,
          ", only 2 is supported");
  tower.pairs.cell = tower.cell_width(), tower.pairs.behind = {NormKind::Rms, text.norm.eps};
  return tower;
}

// The authors' names, with the tower beside the model; and as transformers writes them, with it inside.
std::vector<DiskForm> forms_of(int64_t experts) {
  DiskForm own{.renames = {{"model.vision_tower.", "vision_model."},
                           {"model.resampler_model.", "model.resampler_model."},
                           {"model.language_model.", "model."}},
               .inside = {{"_linear.fc1.", "_linear.0."},
                          {"_linear.fc2.", "_linear.2."},
                          {"_linear.ln.", "_linear.3."},
                          {".mlp.vision_gate.weight", ".mlp.gate.weight_1"}},
               .shifts = {{".mlp.vision_experts.", ".mlp.experts.", experts}},
               .transposed = {".mlp.gate.weight", ".mlp.vision_gate.weight"}};
  DiskForm other = own;
  other.renames[0].disk = "model.vision_model.";
  return {own, other};
}
}  // namespace

DecoderSpec read_ernie_vl(const Config& c) {
  const Json sizes = with_usual_sizes(part_of(c, "text_config"), {{"vocab_size", 103424},
                                                                  {"hidden_size", 2560},
                                                                  {"intermediate_size", 12288},
                                                                  {"num_hidden_layers", 28},
                                                                  {"num_attention_heads", 20}});
  const Config text(sizes);
  DecoderSpec spec =
      read_decoder(text, {.kv_heads = 4, .positions = 131072, .tied = true, .eps = 1e-5, .rope = {.theta = 5e5}});
  RopeSpec& rope = spec.ropes[0];
  require(rope.type == "default", Fault::Model, "config.json: rope_type '", rope.type,
          "' is not supported in this family, only default");
  rope.neighbours = rope.time_last = true;
  if (rope.sections.empty()) rope.sections = {22, 22, 20};
  require(
      rope.sections[0] == rope.sections[1] && rope.sections[0] + rope.sections[1] + rope.sections[2] == rope.dim / 2,
      Fault::Model, "config.json: mrope_section [", rope.sections[0], ", ", rope.sections[1], ", ", rope.sections[2],
      "] (height, width, time) does not share out the ", rope.dim / 2, " frequencies of a head");
  use_experts_by_kind(text, spec);
  SeeingSpec seeing{.vision = read_ernie_tower(c, spec)};
  seeing.aligner = {seeing.vision.merger};
  for (const auto& [key, unsaid] : {std::pair{"image_start_token_id", 101304},
                                    {"image_end_token_id", 101305},
                                    {"video_start_token_id", 101306},
                                    {"video_end_token_id", 101307}})
    seeing.media_marks.push_back(c.integer(key, unsaid));
  seeing.forms = forms_of(spec.shape.experts);
  Json whole = c.json();
  if (!whole.contains("image_token_id")) whole["image_token_id"] = 100295;
  if (!whole.contains("video_token_id")) whole["video_token_id"] = 103367;
  use_sight(Config(whole), spec, std::move(seeing));
  return spec;
}

Json tower_says() {
  return {{"depth", 32},      {"hidden_size", 1280}, {"hidden_act", "quick_gelu"}, {"num_heads", 16},
          {"in_channels", 3}, {"patch_size", 14},    {"spatial_merge_size", 2}};
}

namespace {
Json parts() {
  Json tower = tower_says();
  tower.update({{"model_type", "ernie4_5_vl_moe_vision"}, {"intermediate_size", 5120}, {"temporal_merge_size", 2}});
  return {{"text_config",
           {{"model_type", "ernie4_5_vl_moe_text"},
            {"rms_norm_eps", 1e-5},
            {"moe_num_experts", 64},
            {"moe_k", 6},
            {"moe_num_shared_experts", 2},
            {"moe_intermediate_size", {1536, 512}},
            {"rope_scaling", {{"rope_type", "default"}, {"mrope_section", {22, 22, 20}}}}}},
          {"vision_config", tower}};
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"ernie4.5-vl-28b-a3b-hf", 2560, 28, 20, 4, 0, 12288, 103424, 131072, 5e5, true, {}, parts()},
};

const RegisterFamily ernie4_5_vl_moe("ernie4_5_vl_moe", {.title = "ERNIE 4.5 VL",
                                                         .architecture = "Ernie4_5_VLMoeForConditionalGeneration",
                                                         .read = read_ernie_vl,
                                                         .says = {{"image_token_id", 100295},
                                                                  {"image_start_token_id", 101304},
                                                                  {"image_end_token_id", 101305},
                                                                  {"video_token_id", 103367},
                                                                  {"video_start_token_id", 101306},
                                                                  {"video_end_token_id", 101307}},
                                                         .presets = presets});
}  // namespace

}  // namespace apus::families::ernie4_5_vl_moe
