// SPDX-License-Identifier: Apache-2.0
// Janus, Janus-Pro and DeepSeek-VL (1.3B) in their own files: SigLIP as timm has it, over one square, two linear
// layers, Llama. What draws pictures is not read.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::multi_modality {

namespace {
// The files name the tower; its sizes are known.
struct TimmTower {
  const char* name;
  int64_t width, layers, ffn, patch;
};
constexpr TimmTower kTowers[] = {{"siglip_large_patch16_384", 1024, 24, 4096, 16},
                                 {"siglip_so400m_patch14_384", 1152, 27, 4304, 14},
                                 {"siglip_so400m_patch14_224", 1152, 27, 4304, 14}};

VisionSpec read_timm(const Config& vision) {
  const Config c = part_of(vision, "params");
  const std::string name = c.text("model_name", "siglip_large_patch16_384");
  const TimmTower* known = nullptr;
  for (const TimmTower& each : kTowers)
    if (name == each.name) known = &each;
  require(known != nullptr && vision.text("cls", "CLIPVisionTower") == "CLIPVisionTower", Fault::Model,
          "config.json: vision_config: '", vision.text("cls", ""), "' with model_name '", name,
          "' is not supported: only CLIPVisionTower with SigLIP; the hybrid tower of DeepSeek-VL 7B is not read");
  const Json* said = c.find("select_layer");  // counted from the end where it is below 0
  const int64_t select = said && said->is_number_integer() ? said->get<int64_t>() : -1;
  const int64_t all = c.integer("layers", known->layers);
  VisionSpec s = timm_siglip({.width = c.integer("width", known->width),
                              .layers = select <= 0 ? all + select + 1 : std::min(all, select),
                              .heads = c.integer("heads", 16),
                              .ffn = c.integer("ffn", known->ffn),
                              .patch = c.integer("patch_size", known->patch),
                              .side = c.integer("image_size", 384)});
  s.name = "vision_model.vision_tower", s.merger = "aligner.layers", s.act = TowerActivation::Gelu;
  return s;
}

DecoderSpec read(const Config& c) {
  const Config aligner = part_of(part_of(c, "aligner_config"), "params");
  const std::string projector = aligner.text("projector_type", "mlp_gelu");
  require(projector == "mlp_gelu" && aligner.integer("depth", 2) == 2, Fault::Model,
          "config.json: aligner_config: projector_type '", projector, "' with depth ", aligner.integer("depth", 2),
          " is not supported, only mlp_gelu with 2");
  const Json wrapped = {{"text_config", part_of(c, "language_config").json()}};
  DecoderSpec text = read_text_part(Config(wrapped), "llama");
  text.backbone = "language_model.model", text.head_name = "language_model.lm_head";
  SeeingSpec seeing{.vision = read_timm(part_of(c, "vision_config")), .forms = {{}}};
  VisionSpec& tower = seeing.vision;
  tower.out = tower.merger_inner = text.shape.hidden;
  tower.names.merger_norm = nullptr, tower.names.merger_in = "0", tower.names.merger_out = "2";
  seeing.image_token = c.integer("image_token_id", kTokenizersChoice), seeing.time = TimeRule::Text;
  seeing.language = {text.backbone, text.head_name}, seeing.tower = {tower.name}, seeing.aligner = {"aligner"};
  text.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
  return text;
}

Json llama_says() {
  return {
      {"language_config", {{"model_type", "llama"}, {"architectures", {"LlamaForCausalLM"}}, {"rms_norm_eps", 1e-6}}}};
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"janus-pro-1b", 2048, 24, 16, 16, 0, 5632, 102400, 16384, 1e4, false, {}, llama_says()},
    {"janus-pro-7b", 4096, 30, 32, 32, 0, 11008, 102400, 16384, 1e4, false, {}, llama_says()},
};

const RegisterFamily janus(
    "multi_modality", {.title = "Janus and DeepSeek-VL 1.3B, their own files",
                       .architecture = "MultiModalityCausalLM",
                       .read = read,
                       .says = {{"aligner_config",
                                 {{"cls", "MlpProjector"},
                                  {"params", {{"depth", 2}, {"input_dim", 1024}, {"projector_type", "mlp_gelu"}}}}},
                                {"vision_config",
                                 {{"cls", "CLIPVisionTower"},
                                  {"params",
                                   {{"image_size", 384},
                                    {"model_name", "siglip_large_patch16_384"},
                                    {"select_feature", "same"},
                                    {"select_layer", -1}}}}}},
                       .presets = presets});
}  // namespace

}  // namespace apus::families::multi_modality
