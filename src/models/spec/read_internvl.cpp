// SPDX-License-Identifier: Apache-2.0
#include "models/spec/read_internvl.h"

#include "base/error.h"
#include "models/spec/read_tower.h"

namespace apus {

namespace {
// A number, or the first of a pair: files have sides in both ways.
int64_t side_of(const Config& c, const char* key, int64_t otherwise) {
  const Json* value = c.find(key);
  if (!value || !value->is_array()) return c.integer(key, otherwise);
  const std::vector<int64_t> sides = c.integers(key);
  require(!sides.empty() && sides.front() == sides.back(), Fault::Model, "config.json: vision_config: '", key,
          "' must be one number, or the same number twice");
  return sides.front();
}
}  // namespace

VisionSpec read_intern_tower(const Config& v, const InternTowerDefaults& d) {
  VisionSpec s;
  s.width = v.integer("hidden_size", d.width), s.layers = v.integer("num_hidden_layers", d.layers);
  s.heads = v.integer("num_attention_heads", d.heads), s.ffn = v.integer("intermediate_size", d.ffn);
  s.channels = v.integer("num_channels", 3);
  s.patch = side_of(v, "patch_size", 14), s.tile = side_of(v, "image_size", d.image);
  require(s.layers > 0 && s.layers <= 4096 && s.heads > 0 && s.width > 0 && s.width % s.heads == 0 && s.patch > 0 &&
              s.tile > 0 && s.tile % (2 * s.patch) == 0 && s.channels > 0 && s.ffn > 0,
          Fault::Model, "config.json: vision_config: ", s.layers, " layers, ", s.heads, " heads, hidden_size ", s.width,
          ", patch_size ", s.patch, " and image_size ", s.tile, " do not fit together");
  const std::string norm = v.text("norm_type", d.norm), act = v.text("hidden_act", "gelu");
  require((norm == "layer_norm" || norm == "rms_norm") && act == "gelu", Fault::Model,
          "config.json: vision_config: norm_type '", norm, "' and hidden_act '", act,
          "' are not supported, only layer_norm, rms_norm and gelu");
  s.norm = {norm == "rms_norm" ? NormKind::Rms : NormKind::MeanAndBias, v.number("layer_norm_eps", 1e-6)};
  s.act = TowerActivation::Gelu;
  s.time_patch = 1, s.patch_has_time = false, s.patch_bias = true, s.turned = false;
  s.table_side = s.tile / s.patch, s.table_form = TableForm::Cubic;
  s.merger_norm_first = false, s.merger_norm = NormSpec{NormKind::MeanAndBias, 1e-5};
  return s;
}

Json intern_says() {
  return {{"downsample_ratio", 0.5},
          {"image_token_id", 151667},
          {"projector_hidden_act", "gelu"},
          {"vision_feature_layer", -1},
          {"vision_feature_select_strategy", "default"},
          {"vision_config",
           {{"hidden_size", 1024},
            {"num_hidden_layers", 24},
            {"num_attention_heads", 16},
            {"intermediate_size", 4096},
            {"image_size", {448, 448}},
            {"patch_size", {14, 14}},
            {"norm_type", "layer_norm"},
            {"layer_norm_eps", 1e-6},
            {"hidden_act", "gelu"},
            {"attention_bias", true},
            {"use_qk_norm", false}}}};
}

namespace {
void write_file_of_intern(const Json& config, GgufSettingsWriter& out) {
  const Json vision_json = config.value("vision_config", Json::object());
  const Config vision(vision_json);
  out.whole("vision.image_size", side_of(vision, "image_size", 448));
  out.whole("vision.patch_size", side_of(vision, "patch_size", 14));
  out.own("use_gelu", GgufValue::flag(true));
  out.whole("vision.projector.scale_factor", static_cast<int64_t>(1 / config.value("downsample_ratio", 0.5)));
  for (const auto& [key, name] :
       {std::pair{"min_dynamic_patch", "vision.preproc_min_tiles"}, {"max_dynamic_patch", "vision.preproc_max_tiles"}})
    if (const int64_t tiles = config.value(key, int64_t{0}); tiles > 0) out.whole(name, tiles);
}
}  // namespace

GgufTower intern_gguf_tower(const std::string& joins, const char* norm, const char* in, const char* out) {
  GgufTower tower{.projector = "internvl", .text = "qwen2", .any_text = true};
  tower.form.names = {{"mlp.fc1", "ffn_up"},
                      {"mlp.fc2", "ffn_down"},
                      {joins + norm, "mm.model.mlp.0"},
                      {joins + in, "mm.model.mlp.1"},
                      {joins + out, "mm.model.mlp.3"}};
  tower.form.keys = usual_tower_keys();
  tower.says = {{"vision_config", {{"hidden_act", "gelu"}, {"num_channels", 3}}}};
  tower.write = write_file_of_intern;
  return tower;
}

void use_first_names(VisionSpec& tower, bool normed) {
  tower.name = "vision_model", tower.merger = "mlp1";
  tower.qk_norm.eps = tower.norm.eps;  // transformers' layout has a number of its own
  VisionNames& n = tower.names;
  n.patches = "embeddings.patch_embedding", n.first = "embeddings.class_embedding";
  n.table = "embeddings.position_embedding", n.blocks = "encoder.layers";
  n.scale1 = "ls1", n.scale2 = "ls2";
  if (normed) n.q_norm = "attn.q_norm", n.k_norm = "attn.k_norm";
  n.merger_norm = "0", n.merger_in = "1", n.merger_out = "3";
}

DecoderSpec with_intern_tower(const Config& c, DecoderSpec spec, VisionSpec tower, int64_t token,
                              std::vector<std::string> language, std::vector<DiskForm> forms) {
  const double ratio = c.number("downsample_ratio", 0.5);
  require(ratio == 0.5, Fault::Model, "config.json: downsample_ratio ", ratio, " is not supported, only 0.5");
  require(token == kTokenizersChoice || (token >= 0 && token < spec.shape.vocab), Fault::Model,
          "config.json: image_token_id ", token, " must lie inside the vocabulary of ", spec.shape.vocab);
  tower.out = tower.merger_inner = spec.shape.hidden;
  SeeingSpec seeing{.vision = std::move(tower)};
  seeing.image_token = seeing.video_token = token;
  seeing.time = TimeRule::Text;
  seeing.language = std::move(language);
  seeing.tower = {seeing.vision.name}, seeing.aligner = {seeing.vision.merger};
  seeing.forms = std::move(forms);
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
  return spec;
}

}  // namespace apus
