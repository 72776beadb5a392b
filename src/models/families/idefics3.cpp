// SPDX-License-Identifier: Apache-2.0
// Idefics 3: SigLIP's tower over tiles of a picture, of whose patches squares become one row, and any
// text model.
#include "models/families/idefics3.h"

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus {

DecoderSpec read_idefics3(const Config& c) {
  DecoderSpec text = read_text_part(c, "llama");
  text.backbone = "model.text_model";
  SeeingSpec seeing{.vision = read_idefics_tower(part_of(c, "vision_config")), .forms = {{}}};
  VisionSpec& tower = seeing.vision;
  use_last_norm(tower);
  tower.name = "model.vision_model", tower.merger = "model.connector";
  tower.merge = c.integer("scale_factor", 2), tower.merger_bias = false;
  require(tower.merge > 0 && tower.table_side % tower.merge == 0, Fault::Model, "config.json: scale_factor ",
          tower.merge, " does not divide the ", tower.table_side, " patches of a tile's side");
  VisionNames& n = tower.names;
  n.merger_norm = n.merger_out = nullptr, n.merger_in = "modality_projection.proj";
  return with_tower(c, std::move(text), std::move(seeing));
}

}  // namespace apus

namespace apus::families::idefics3 {

namespace {
constexpr int64_t kUsualMerge = 2;
void read_file_of_tower(const GgufSays& clip, Json& config) {
  config["scale_factor"] = clip.integer("vision.projector.scale_factor").value_or(kUsualMerge);
}
void write_file_of_tower(const Json& config, GgufSettingsWriter& out) {
  out.whole("vision.projector.scale_factor", config.value("scale_factor", kUsualMerge));
  out.own("use_gelu", GgufValue::flag(true));
}
}  // namespace

}  // namespace apus::families::idefics3

namespace apus {

GgufTower idefics3_gguf_tower() {
  GgufTower tower = siglip_gguf_tower("model.vision_model.");
  tower.projector = "idefics3", tower.architecture = "llama", tower.text = "llama";
  tower.part = "text_config", tower.part_type = "llama";
  tower.begins = {{"model.", "model.text_model."}};
  tower.form.names.push_back({"model.connector.modality_projection.proj", "mm.model.fc"});
  tower.says["vision_config"].erase("vision_use_head"), tower.says["vision_config"]["model_type"] = "idefics3_vision";
  tower.tokens = {{"image_token_id", "<image>"}};
  tower.read = families::idefics3::read_file_of_tower, tower.write = families::idefics3::write_file_of_tower;
  return tower;
}

}  // namespace apus

namespace apus::families::idefics3 {

namespace {
// Its files are read as SmolVLM's, which is the same model.
GgufTower gguf_tower() {
  GgufTower tower = idefics3_gguf_tower();
  tower.only_written = true;
  return tower;
}

Json llama_part_says() {
  return {{"text_config", {{"model_type", "llama"}, {"architectures", {"LlamaForCausalLM"}}, {"rms_norm_eps", 1e-5}}}};
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"idefics3-8b", 4096, 32, 32, 8, 128, 14336, 128259, 131072, 5e5, false, {}, llama_part_says()},
};

const RegisterFamily idefics3("idefics3", {.title = "Idefics 3",
                                           .architecture = "Idefics3ForConditionalGeneration",
                                           .read = read_idefics3,
                                           .says = {{"image_token_id", 128257},
                                                    {"scale_factor", 2},
                                                    {"vision_config",
                                                     {{"hidden_size", 1152},
                                                      {"num_hidden_layers", 27},
                                                      {"num_attention_heads", 16},
                                                      {"intermediate_size", 4304},
                                                      {"image_size", 364},
                                                      {"patch_size", 14}}}},
                                           .presets = presets,
                                           .gguf_tower = gguf_tower()});
}  // namespace

}  // namespace apus::families::idefics3
