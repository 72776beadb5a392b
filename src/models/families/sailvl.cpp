// SPDX-License-Identifier: Apache-2.0
// SAIL-VL2 in its authors' files: AIMv2's tower over square tiles, and Qwen3 behind it. Cells of 2 x 2 patches become
// rows as in InternVL.
#include "base/error.h"
#include "models/families/internvl_chat.h"
#include "models/families/ovis.h"
#include "models/spec/family.h"
#include "models/spec/read_internvl.h"
#include "models/spec/read_seeing.h"

namespace apus::families::sailvl {

namespace {
VisionSpec read_sail_tower(const Config& v) {
  VisionSpec tower = read_aimv2(v, "use_bias");
  use_own_aimv2_names(tower);
  tower.name = "vision_model", tower.merger = "mlp1", tower.merge = 2;
  require(tower.tile % (2 * tower.patch) == 0, Fault::Model, "config.json: vision_config: image_size ", tower.tile,
          " has no whole cells of two patches of ", tower.patch);
  tower.merger_norm_first = false, tower.merger_norm = NormSpec{NormKind::MeanAndBias, 1e-5};
  VisionNames& n = tower.names;
  n.norm_out = "trunk.post_trunk_norm";
  n.merger_norm = "0", n.merger_in = "1", n.merger_out = "3";
  return tower;
}

DecoderSpec read(const Config& c) {
  const Json* layer = c.find("select_layer");
  require(
      c.text("ps_version", "v1") == "v2" && layer && *layer == -1, Fault::Model,
      "config.json: ps_version 'v1' and a select_layer before the last are not supported: SAIL-VL2's files say 'v2' "
      "and -1");
  VisionSpec tower = read_sail_tower(part_of(c, "vision_config"));
  const int64_t side = c.integer("force_image_size", tower.tile);
  require(side == tower.tile, Fault::Model, "config.json: force_image_size ", side, " must be the tower's image_size ",
          tower.tile);
  return with_intern_tower(c, read_language(part_of(c, "llm_config"), "language_model."), std::move(tower),
                           c.integer("image_token_id", c.integer("img_context_token_id", kTokenizersChoice)),
                           {"language_model"}, {});
}

const Json text = {{"llm_config", {{"model_type", "qwen3"}, {"architectures", {"Qwen3ForCausalLM"}}}}};

// name       hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"sail-vl2-2b", 2048, 28, 16, 8, 128, 6144, 151936, 40960, 1e6, true, {}, text},
    {"sail-vl2-8b", 4096, 36, 32, 8, 128, 12288, 151936, 40960, 1e6, false, {}, text},
};

Json says() {
  Json all = internvl_chat::says({{"model_type", "sailvit"},
                                  {"hidden_size", 1536},
                                  {"num_hidden_layers", 24},
                                  {"num_attention_heads", 12},
                                  {"intermediate_size", 4096},
                                  {"image_size", 448},
                                  {"patch_size", 14},
                                  {"qkv_bias", false},
                                  {"use_bias", false},
                                  {"rms_norm_eps", 1e-5}});
  all["template"] = "univl-chat";
  return all;
}

const RegisterFamily sailvl(
    "sailvl", {.title = "SAIL-VL2", .architecture = "SAILVLModel", .read = read, .says = says(), .presets = presets});
}  // namespace

}  // namespace apus::families::sailvl
