// SPDX-License-Identifier: Apache-2.0
#include "models/spec/read_qwen3_vl.h"

#include <cmath>

#include "base/error.h"
#include "models/spec/qwen_gguf.h"

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

namespace {

std::vector<int64_t> deep_layers(const Json& vision) {
  return vision.value("deepstack_visual_indexes", std::vector<int64_t>{8, 16, 24});
}

std::vector<GgufPair> names_of_deep_mergers(const Json& vision) {
  std::vector<GgufPair> names;
  int64_t number = 0;
  for (const int64_t layer : deep_layers(vision)) {
    const std::string hf = str("model.visual.deepstack_merger_list.", number++, "."),
                      file = str("v.deepstack.", layer, ".");
    for (const auto& [own, short_name] : {std::pair{"norm", "norm"}, {"linear_fc1", "fc1"}, {"linear_fc2", "fc2"}})
      names.push_back({hf + own, file + short_name});
  }
  return names;
}

void read_file_of_tower(const GgufSays& clip, Json& config) {
  Json& vision = config["vision_config"];
  vision["out_hidden_size"] = clip.needed("vision.projection_dim");
  const auto deep = clip.integers("vision.is_deepstack_layers");
  vision["deepstack_visual_indexes"] = Json::array();
  for (size_t i = 0; i < deep.size(); ++i)
    if (deep[i] != 0) vision["deepstack_visual_indexes"].push_back(i);
  const GgufTensor* table = clip.tensor("v.position_embd.weight");
  require(table && table->shape.size() == 2, Fault::Model, clip.header().where,
          ": there is no table v.position_embd.weight");
  vision["num_position_embeddings"] = table->shape[0];
  Json& text = config["text_config"];
  text["rope_scaling"]["mrope_interleaved"] = true;
}

void write_file_of_tower(const Json& config, GgufSettingsWriter& out) {
  const Json& vision = config["vision_config"];
  const auto side = std::lround(std::sqrt(static_cast<double>(vision.value("num_position_embeddings", int64_t{2304}))));
  out.whole("vision.image_size", side * vision.value("patch_size", int64_t{16}));
  out.own("use_gelu", GgufValue::flag(true));
  std::vector<bool> deep(static_cast<size_t>(vision.value("depth", int64_t{0})));
  for (const int64_t layer : deep_layers(vision)) deep.at(static_cast<size_t>(layer)) = true;
  out.flags("vision.is_deepstack_layers", deep);
}

void write_file_of_text(const Json& config, GgufSettingsWriter& out) {
  out.whole("n_deepstack_layers", std::ssize(deep_layers(config["vision_config"])));
}

}  // namespace

GgufTower qwen3_gguf_tower(const std::string& architecture, const std::string& text, const std::string& part_type) {
  GgufTower tower = qwen_tower("qwen3vl_merger", architecture, text,
                               {"mlp.linear_fc1", "mlp.linear_fc2", "norm", "linear_fc1", "linear_fc2", true});
  tower.part = "text_config", tower.part_type = part_type;
  tower.form.names.push_back({"model.visual.pos_embed", "v.position_embd"});
  tower.form.keys.push_back({"hidden_size", "vision.embedding_length"});
  tower.form.keys.push_back({"intermediate_size", "vision.feed_forward_length"});
  tower.form.keys.push_back({"spatial_merge_size", "vision.spatial_merge_size"});
  tower.says["vision_config"].update({{"hidden_act", "gelu_pytorch_tanh"}});
  tower.further = names_of_deep_mergers;
  tower.read = read_file_of_tower, tower.write = write_file_of_tower, tower.write_text = write_file_of_text;
  return tower;
}

}  // namespace apus
