// SPDX-License-Identifier: Apache-2.0
// Phi-3-vision and Phi-3.5-vision: Phi-3 behind CLIP. A picture is a larger one in squares and all of it in one more;
// 2 x 2 patches become one row, and what ends each line goes through the projector as they do.
#include "base/error.h"
#include "media/mosaic.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::phi3_v {

namespace {
void expect_of_phi(const Config& c, const char* part, const char* key, const char* wanted) {
  const Json* said = c.find(part);
  const Json value = said && said->is_object() && said->contains(key) ? (*said)[key] : Json(wanted);
  require(value == wanted, Fault::Model, "config.json: ", part, ": ", key, " is ", value.dump(), ", only '", wanted,
          "' is supported");
}

DecoderSpec read(const Config& c) {
  expect_of_phi(c, "embd_layer", "hd_transform_order", "sub_glb");
  expect_of_phi(c, "embd_layer", "projection_cls", "mlp");
  expect_of_phi(c, "img_processor", "name", "clip_vision_model");
  Json text = c.json();
  text["model_type"] = "phi3";
  DecoderSpec spec = read_language(Config(text), "");
  // The files do not describe their tower; one that is described is believed.
  const Json tower_says = c.find("vision_config") ? part_of(c, "vision_config").json() : clip_large_says();
  const Json plain = Json::object();
  SeeingSpec seeing{.vision = read_tower(Config(tower_says))};
  VisionSpec& tower = seeing.vision;
  require(tower.tile > 0 && tower.names.first && tower.tile % (2 * tower.patch) == 0, Fault::Model,
          "config.json: vision_config: only a clip_vision_model of squares of whole 2 x 2 patches is supported here");
  use_feature_layer(Config(plain), tower, -2);
  use_two_layers(Config(plain), tower, spec.shape.hidden);
  tower.merge = 2;
  const std::string eyes = "model.vision_embed_tokens.";
  tower.name = eyes + "img_processor.vision_model", tower.merger = eyes + "img_projection";
  tower.names.merger_in = "0", tower.names.merger_out = "2";
  tower.line_end = eyes + "sub_GN", tower.between = eyes + "glb_GN";
  seeing.mosaic = std::make_shared<const MosaicForm>(
      MosaicForm{.sizes = {}, .side = tower.tile, .cells = tower.table_side / 2, .in_lines = true, .whole_last = true});
  seeing.image_token = c.integer("image_token_id", kTokenizersChoice), seeing.forms = {{}};
  use_sight_in_line(spec, std::move(seeing));
  return spec;
}

Json long_says() { return {{"rms_norm_eps", 1e-5}, {"original_max_position_embeddings", 4096}}; }

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"phi3.5-vision", 3072, 32, 32, 32, 0, 8192, 32064, 131072, 1e4, false, {}, long_says()},
};

const RegisterFamily phi3_v("phi3_v", {.title = "Phi-3-vision, Phi-3.5-vision",
                                       .architecture = "Phi3VForCausalLM",
                                       .read = read,
                                       .says = {{"embd_layer",
                                                 {{"embedding_cls", "image"},
                                                  {"hd_transform_order", "sub_glb"},
                                                  {"projection_cls", "mlp"},
                                                  {"use_hd_transform", true},
                                                  {"with_learnable_separator", true}}},
                                                {"img_processor",
                                                 {{"image_dim_out", 1024},
                                                  {"model_name", "openai/clip-vit-large-patch14-336"},
                                                  {"name", "clip_vision_model"},
                                                  {"num_img_tokens", 144}}},
                                                {"vision_config", clip_large_says()}},
                                       .presets = presets});
}  // namespace

}  // namespace apus::families::phi3_v
