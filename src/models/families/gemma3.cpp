// SPDX-License-Identifier: Apache-2.0
// Gemma 3 that sees: SigLIP's tower, of whose patches squares are averaged. Tokens of an image see each other.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::gemma3 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec text = read_text_part(c, "gemma3_text");
  SeeingSpec seeing{.vision = read_tower(part_of(c, "vision_config"))};
  VisionSpec& tower = seeing.vision;
  use_last_norm(tower);
  const int64_t tokens = c.integer("mm_tokens_per_image", 256);
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(tokens)));
  require(tower.table_side > 0 && side > 0 && side * side == tokens && tower.table_side % side == 0, Fault::Model,
          "config.json: ", tower.table_side, " x ", tower.table_side, " patches do not become mm_tokens_per_image ",
          tokens, " tokens by averaging squares of them");
  tower.merge = tower.table_side / side, tower.cells = CellForm::Mean;
  tower.merger_norm_first = false, tower.merger_norm = NormSpec{NormKind::RmsFromOne, tower.norm.eps};
  tower.names.merger_norm = "mm_soft_emb_norm", tower.names.merger_matrix = "mm_input_projection_weight";
  seeing.sees_ahead = true;
  return with_tower(c, std::move(text), std::move(seeing));
}

Json text_part_says() {
  return {{"text_config",
           {{"model_type", "gemma3_text"},
            {"architectures", {"Gemma3ForCausalLM"}},
            {"hidden_activation", "gelu_pytorch_tanh"},
            {"query_pre_attn_scalar", 256},
            {"rope_local_base_freq", 1e4},
            {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}},
            {"sliding_window", 1024}}}};
}
Json larger_part_says() {
  Json says = text_part_says();
  says["text_config"]["query_pre_attn_scalar"] = 168;
  return says;
}

// Squares of patches are averaged; files say the side of a square where it is not 4.
constexpr int64_t kUsualSide = 4;

int64_t patches_a_side(const Json& vision) {
  const auto patch = vision.value("patch_size", int64_t{14});
  return patch > 0 ? vision.value("image_size", int64_t{896}) / patch : 0;
}
void read_file_of_tower(const GgufSays& clip, Json& config) {
  const int64_t side = clip.integer("vision.projector.scale_factor").value_or(kUsualSide);
  require(side > 0, Fault::Model, clip.header().where, ": clip.vision.projector.scale_factor is ", side);
  const int64_t tokens = patches_a_side(config["vision_config"]) / side;
  config["mm_tokens_per_image"] = tokens * tokens;
}
void write_file_of_tower(const Json& config, GgufSettingsWriter& out) {
  const auto tokens = static_cast<double>(config.value("mm_tokens_per_image", int64_t{256}));
  const auto side = patches_a_side(config["vision_config"]) / std::max<int64_t>(1, std::lround(std::sqrt(tokens)));
  if (side != kUsualSide) out.whole("vision.projector.scale_factor", side);
  out.own("use_gelu", GgufValue::flag(true));
}

GgufTower gguf_tower() {
  GgufTower tower = siglip_gguf_tower("model.vision_tower.");
  tower.projector = "gemma3", tower.architecture = "gemma3", tower.text = "gemma3_text";
  tower.part = "text_config", tower.part_type = "gemma3_text";
  tower.begins = {{"model.", "model.language_model."}};
  tower.form.names.push_back({"model.multi_modal_projector.mm_input_projection_weight", "mm.input_projection.weight"});
  tower.form.names.push_back(
      {"model.multi_modal_projector.mm_soft_emb_norm", "mm.soft_emb_norm", {.numbers = GgufTurn::Numbers::FromOne}});
  tower.tokens = {{"image_token_index", "<image_soft_token>"},
                  {"boi_token_index", "<start_of_image>"},
                  {"eoi_token_index", "<end_of_image>"}};
  tower.read = read_file_of_tower, tower.write = write_file_of_tower;
  return tower;
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"gemma3-4b", 2560, 34, 8, 4, 256, 10240, 262208, 131072, 1e6, true, {}, text_part_says()},
    {"gemma3-12b", 3840, 48, 16, 8, 256, 15360, 262208, 131072, 1e6, true, {}, text_part_says()},
    {"gemma3-27b", 5376, 62, 32, 16, 128, 21504, 262208, 131072, 1e6, true, {}, larger_part_says()},
};

const RegisterFamily gemma3_sees("gemma3", {.title = "Gemma 3",
                                            .architecture = "Gemma3ForConditionalGeneration",
                                            .read = read,
                                            .says = {{"mm_tokens_per_image", 256},
                                                     {"boi_token_index", 255999},
                                                     {"eoi_token_index", 256000},
                                                     {"image_token_index", 262144},
                                                     {"vision_config",
                                                      {{"model_type", "siglip_vision_model"},
                                                       {"hidden_size", 1152},
                                                       {"num_hidden_layers", 27},
                                                       {"num_attention_heads", 16},
                                                       {"intermediate_size", 4304},
                                                       {"image_size", 896},
                                                       {"patch_size", 14},
                                                       {"vision_use_head", false}}}},
                                            .presets = presets,
                                            .gguf_tower = gguf_tower()});
}  // namespace

}  // namespace apus::families::gemma3
