// SPDX-License-Identifier: Apache-2.0
// ERNIE 4.5 VL in its authors' own files: the same model, whose config.json has the text's settings at the top, and
// those of both kinds of experts side by side.
#include <algorithm>

#include "base/error.h"
#include "models/families/ernie4_5_vl_moe.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"

namespace apus::families::ernie4_5_moe_vl {

namespace {
// [text, seen], or one number for both.
std::vector<int64_t> of_both(const Config& c, const char* key, int64_t unsaid) {
  const Json* found = c.find(key);
  if (!found || found->is_null()) return {unsaid, unsaid};
  if (found->is_number()) return {c.integer(key), c.integer(key)};
  const std::vector<int64_t> said = c.integers(key);
  require(said.size() == 2, Fault::Model, "config.json: ", key, " has ", said.size(),
          " entries, one for text and one for what is seen are read");
  return said;
}

Json text_of(const Config& c, int64_t layers) {
  Json text = c.json();
  text["model_type"] = "ernie4_5_vl_moe_text";
  text.erase("vision_config");
  const std::vector<int64_t> experts = of_both(c, "moe_num_experts", 64);
  require(experts[0] == experts[1], Fault::Model, "config.json: moe_num_experts ", experts[0], " and ", experts[1],
          ": only as many for text as for what is seen are supported");
  text["moe_num_experts"] = experts[0];
  const std::vector<int64_t> first = of_both(c, "moe_layer_start_index", 1),
                             last = of_both(c, "moe_layer_end_index", layers - 1);
  const int64_t every = c.integer("moe_layer_interval", 1);
  require(every > 0, Fault::Model, "config.json: moe_layer_interval must be above 0");
  Json types = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    const bool sparse = (i + 1) % every == 0 && i >= std::min(first[0], first[1]) && i <= std::max(last[0], last[1]);
    types.push_back(sparse ? "sparse" : "dense");
  }
  text["mlp_layer_types"] = types;
  // Of a head's frequencies so many follow time.
  const int64_t heads = c.integer("num_attention_heads", 20), time = c.integer("freq_allocation", 20);
  require(heads > 0, Fault::Model, "config.json: num_attention_heads is ", heads);
  const int64_t rest = c.integer("head_dim", c.integer("hidden_size", 2560) / heads) / 2 - time;
  require(c.flag("rope_3d", true) && rest > 0 && rest % 2 == 0, Fault::Model,
          "config.json: rope_3d and freq_allocation ", time, " do not share out the frequencies of a head");
  text["rope_scaling"] = {{"rope_type", "default"}, {"mrope_section", {rest / 2, rest / 2, time}}};
  return text;
}

DecoderSpec read(const Config& c) {
  Json vision = part_of(c, "vision_config").json();
  vision["spatial_merge_size"] = c.integer("spatial_conv_size", 2);
  vision["temporal_merge_size"] = c.integer("temporal_conv_size", 2);
  vision["rms_norm_eps"] = 1e-6;
  const Config tower(vision);
  vision["intermediate_size"] = static_cast<int64_t>(tower.number("mlp_ratio", 4) * tower.number("hidden_size", 1280));
  Json whole = {{"text_config", text_of(c, c.integer("num_hidden_layers", 28))},
                {"vision_config", std::move(vision)},
                {"image_token_id", c.integer("im_patch_id", 100295)},
                {"tie_word_embeddings", c.flag("tie_word_embeddings", true)}};
  for (const char* key :
       {"image_start_token_id", "image_end_token_id", "video_token_id", "video_start_token_id", "video_end_token_id"})
    if (c.find(key)) whole[key] = *c.find(key);
  return ernie4_5_vl_moe::read_ernie_vl(Config(whole));
}

Json sight() {
  Json tower = ernie4_5_vl_moe::tower_says();
  tower.update({{"model_type", "DFNRope_vision_transformer"}, {"embed_dim", 1280}, {"mlp_ratio", 4}});
  return {{"vision_config", tower}};
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"ernie4.5-vl-28b-a3b", 2560, 28, 20, 4, 0, 12288, 103424, 131072, 5e5, true, {}, sight()},
};

const RegisterFamily ernie4_5_moe_vl("ernie4_5_moe_vl", {.title = "ERNIE 4.5 VL, its authors' files",
                                                         .architecture = "Ernie4_5_VLMoeForConditionalGeneration",
                                                         .read = read,
                                                         .says = {{"im_patch_id", 100295},
                                                                  {"rms_norm_eps", 1e-5},
                                                                  {"rope_3d", true},
                                                                  {"freq_allocation", 20},
                                                                  {"spatial_conv_size", 2},
                                                                  {"temporal_conv_size", 2},
                                                                  {"moe_num_experts", {64, 64}},
                                                                  {"moe_k", 6},
                                                                  {"moe_num_shared_experts", 2},
                                                                  {"moe_layer_start_index", {1, 1}},
                                                                  {"moe_layer_end_index", {29, 28}},
                                                                  {"moe_layer_interval", 1},
                                                                  {"moe_intermediate_size", {1536, 512}}},
                                                         .presets = presets});
}  // namespace

}  // namespace apus::families::ernie4_5_moe_vl
