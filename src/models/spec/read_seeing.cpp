// SPDX-License-Identifier: Apache-2.0
#include "models/spec/read_seeing.h"

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/page_spec.h"

namespace apus {

Config text_part(const Config& config) { return config.find("text_config") ? part_of(config, "text_config") : config; }

Config part_of(const Config& config, const char* key) {
  const Json* part = config.find(key);
  require(part && part->is_object(), Fault::Model, "config.json: '", key, "' is missing, or no object");
  return Config(*part);
}

VisionSpec read_vision(const Config& v, const char* width) {
  VisionSpec s;
  s.layers = v.integer("depth"), s.heads = v.integer("num_heads", 16);
  s.width = v.integer(width);
  s.patch = v.integer("patch_size"), s.time_patch = v.integer("temporal_patch_size", 2);
  s.merge = v.integer("spatial_merge_size", 2);
  s.channels = v.integer("in_channels", v.integer("in_chans", 3));
  require(s.layers > 0 && s.layers <= 4096 && s.heads > 0 && s.width > 0 && s.width % s.heads == 0 &&
              s.head_size() % 4 == 0 && s.patch > 0 && s.time_patch > 0 && s.merge > 0 && s.channels > 0,
          Fault::Model, "config.json: vision_config: depth ", s.layers, ", num_heads ", s.heads, ", ", width, " ",
          s.width, ", patch_size ", s.patch, " do not fit together");
  return s;
}

void use_windowed_tower(const Config& vision, VisionSpec& tower) {
  tower.ffn = vision.integer("intermediate_size", 3420);
  tower.out = vision.integer("out_hidden_size", 3584);
  tower.norm = {NormKind::Rms, 1e-6};
  tower.act = TowerActivation::Silu;
  tower.names.gate = "mlp.gate_proj", tower.names.up = "mlp.up_proj", tower.names.down = "mlp.down_proj";
  tower.window = vision.integer("window_size", 112) / tower.merge / tower.patch;
  require(tower.window > 0, Fault::Model, "config.json: vision_config: window_size is smaller than a merged patch");
  tower.full_layers = vision.find("fullatt_block_indexes") ? vision.integers("fullatt_block_indexes")
                                                           : std::vector<int64_t>{7, 15, 23, 31};
}

namespace {
void check_fit(const DecoderSpec& spec, const SeeingSpec& seeing) {
  require(seeing.image_token < spec.shape.vocab && seeing.video_token < spec.shape.vocab, Fault::Model,
          "config.json: image_token_id ", seeing.image_token, " and video_token_id ", seeing.video_token,
          " must lie inside the vocabulary of ", spec.shape.vocab);
  require(seeing.vision.out == spec.shape.hidden, Fault::Model, "config.json: the vision tower gives rows of ",
          seeing.vision.out, " numbers, the text part reads ", spec.shape.hidden);
}
}  // namespace

void use_sight(const Config& c, DecoderSpec& spec, SeeingSpec seeing) {
  seeing.image_token = c.integer("image_token_id"), seeing.video_token = c.integer("video_token_id", -1);
  check_fit(spec, seeing);
  require(!spec.ropes.front().sections.empty(), Fault::Model,
          "config.json: the rotary settings lack 'mrope_section', by which this model places images");
  // The whole decides, where it says it; files of transformers 5 leave it to the text part.
  spec.tied = c.flag("tie_word_embeddings", spec.tied);
  spec.backbone = "model.language_model";
  if (seeing.language.empty()) seeing.language = {"model.language_model", "lm_head"};
  if (seeing.tower.empty()) seeing.tower = {seeing.vision.name};
  if (seeing.aligner.empty())
    seeing.aligner = {seeing.vision.name + ".merger", seeing.vision.name + "." + seeing.vision.names.deep_mergers};
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
}

void use_sight_in_line(DecoderSpec& spec, SeeingSpec seeing) {
  check_fit(spec, seeing);
  seeing.time = TimeRule::Text;
  seeing.language = {spec.backbone, spec.head_name}, seeing.tower = {seeing.vision.name};
  seeing.aligner = {seeing.vision.merger_name()};
  for (const std::string& row : {seeing.vision.newline, seeing.vision.separator})
    if (!row.empty()) seeing.aligner.push_back(row);
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
}

SeeingSpec page_sight(const DecoderSpec& text, PageSpec page, int64_t token) {
  require(token < text.shape.vocab, Fault::Model, "config.json: image_token_id ", token,
          " must lie inside the vocabulary of ", text.shape.vocab);
  SeeingSpec seeing{.vision = vision_of(page)};
  seeing.image_token = token, seeing.time = TimeRule::Text;
  seeing.page = std::make_shared<const PageSpec>(std::move(page));
  return seeing;
}

DecoderSpec read_language(const Config& part, const std::string& prefix) {
  DecoderSpec spec = describe_model(part.json());
  require(!spec.seeing, Fault::Model, "config.json: the text part is a '", part.text("model_type", ""),
          "', which sees itself");
  spec.backbone = prefix + spec.backbone, spec.head_name = prefix + spec.head_name;
  return spec;
}

DiskForm form_before_nesting() {
  return {.renames = {{"model.visual.", "visual."}, {"model.language_model.", "model."}}};
}

}  // namespace apus
