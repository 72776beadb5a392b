// SPDX-License-Identifier: Apache-2.0
#include "models/spec/read_qwen3_vl.h"

#include <cmath>

#include "base/error.h"

namespace apus {

SeeingSpec read_qwen3_tower(const Config& c) {
  const Config vision = part_of(c, "vision_config");
  SeeingSpec seeing{.vision = read_vision(vision, "hidden_size"), .time = TimeRule::Apart};
  VisionSpec& tower = seeing.vision;
  tower.ffn = vision.integer("intermediate_size", 4304);
  tower.out = vision.integer("out_hidden_size", 3584);
  tower.patch_bias = true;
  const std::string act = vision.text("hidden_act", "gelu_pytorch_tanh");
  require(act == "gelu_pytorch_tanh" || act == "gelu", Fault::Model, "config.json: vision_config: hidden_act '", act,
          "' is not known in this family, only gelu_pytorch_tanh and gelu");
  tower.act = act == "gelu" ? TowerActivation::Gelu : TowerActivation::GeluTanh;
  tower.names.up = "mlp.linear_fc1", tower.names.down = "mlp.linear_fc2";
  tower.names.merger_norm = "norm", tower.names.merger_in = "linear_fc1", tower.names.merger_out = "linear_fc2";
  const int64_t entries = vision.integer("num_position_embeddings", 2304);
  tower.table_side = std::lround(std::sqrt(static_cast<double>(entries)));
  require(entries > 0 && tower.table_side * tower.table_side == entries, Fault::Model,
          "config.json: vision_config: num_position_embeddings ", entries, " is no square");
  return seeing;
}

SeeingSpec read_qwen3_sight(const Config& c) {
  const Config vision = part_of(c, "vision_config");
  SeeingSpec seeing = read_qwen3_tower(c);
  VisionSpec& tower = seeing.vision;
  tower.deep_layers = vision.find("deepstack_visual_indexes") ? vision.integers("deepstack_visual_indexes")
                                                              : std::vector<int64_t>{8, 16, 24};
  for (const int64_t layer : tower.deep_layers)
    require(layer >= 0 && layer < tower.layers, Fault::Model,
            "config.json: vision_config: deepstack_visual_indexes: ", layer, " is no layer of a tower of ",
            tower.layers);
  return seeing;
}

Json qwen3_sight_says() {
  return {{"rope_scaling", {{"rope_type", "default"}, {"mrope_section", {24, 20, 20}}, {"mrope_interleaved", true}}},
          {"image_token_id", 151655},
          {"video_token_id", 151656},
          {"vision_start_token_id", 151652},
          {"vision_end_token_id", 151653}};
}

Json qwen3_tower_says(int64_t out, bool small) {
  return {{"vision_config",
           {{"depth", small ? 24 : 27},
            {"hidden_act", "gelu_pytorch_tanh"},
            {"hidden_size", small ? 1024 : 1152},
            {"intermediate_size", small ? 4096 : 4304},
            {"num_heads", 16},
            {"in_channels", 3},
            {"out_hidden_size", out},
            {"patch_size", 16},
            {"spatial_merge_size", 2},
            {"temporal_patch_size", 2},
            {"num_position_embeddings", 2304},
            {"deepstack_visual_indexes", small ? Json{5, 11, 17} : Json{8, 16, 24}}}}};
}

}  // namespace apus
